package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker"
)

// maxGroups bounds the number of groups.
const maxGroups = 1000

// Grouping is the property by which letters are grouped.
type Grouping string

const (
	// BySignature groups the letters of jobs that were given up after errors of one kind, for one reason, in one stream.
	BySignature Grouping = "signature"

	// BySubject groups the letters of one stream by the first two tokens of their jobs' subjects. Under a Filter.Subject it
	// groups them by the whole subject.
	BySubject Grouping = "subject"

	// ByStream groups the letters by the stream that held the jobs.
	ByStream Grouping = "stream"

	// ByWorker groups the letters of one stream by the worker that gave the jobs up. Stranded messages have no worker.
	ByWorker Grouping = "worker"
)

// Group describes letters with a common property.
type Group struct {
	// By is the common property. Reason and Signature are empty unless it is BySignature.
	By Grouping `json:"by"`

	// Count is the number of letters.
	Count int `json:"count"`

	// Error is the whole text of the error of the latest letter.
	Error string `json:"error,omitempty"`

	// Example is the sequence of the latest letter, for Get.
	Example uint64 `json:"example"`

	// FirstAt and LastAt are the times at which the first and the latest letter were stored.
	FirstAt time.Time `json:"firstAt"`
	LastAt  time.Time `json:"lastAt"`

	// Kind is the kind of the entries.
	Kind Kind `json:"kind"`

	// Reason is the reason that the jobs were given up.
	Reason worker.Reason `json:"reason,omitempty"`

	// Signature is the signature of the jobs' errors, see worker.DeadLetter.
	Signature string `json:"signature,omitempty"`

	// Stream is the stream that held the jobs.
	Stream string `json:"stream"`

	// Subjects is the narrowest pattern that covers the jobs' subjects, such as "jobs.mail.>", and with BySubject the pattern
	// of the group. It is empty for stranded messages, whose advisories have no subject.
	Subjects string `json:"subjects,omitempty"`

	// Worker is the worker that gave the jobs up, with ByWorker.
	Worker string `json:"worker,omitempty"`
}

// Filter returns the filter that selects the letters of the group among those that within selects.
func (g Group) Filter(within Filter) Filter {
	within.Kind, within.Stream = g.Kind, g.Stream
	switch g.By {
	case BySubject:
		within.Subject = g.Subjects
	case ByStream:
	case ByWorker:
		within.Worker = g.Worker
	default:
		within.Reason, within.Signature = g.Reason, g.Signature
	}
	return within
}

// Overview summarises the letters of a dead letter stream.
type Overview struct {
	// Groups are the groups, the largest first.
	Groups []Group

	// Others is the number of letters in no group because there are more than 1,000 groups.
	Others int

	// Partial reports whether letters that the filter may select were not read, because of SurveyOptions.Newest.
	Partial bool

	// Total is the number of letters that the filter selects: those of all groups, and Others.
	Total int
}

// SurveyOptions configures a survey. The zero value groups all letters by signature.
type SurveyOptions struct {
	// By is the property by which letters are grouped. Defaults to BySignature.
	By Grouping

	// Newest is the number of messages of the stream that are read: the newest ones. Defaults to all.
	Newest uint64
}

// Survey groups the letters that the filter selects. It reads the letters, 4,096 of them or 8 MB in one round trip, and returns 1,000
// groups at most, and holds the latest letter of each. A filter on subjects costs a round trip for each stranded message, and a group of
// stranded messages costs one or two.
func (s *Store) Survey(ctx context.Context, f Filter, opts SurveyOptions) (Overview, error) {
	opts.By = cmp.Or(opts.By, BySignature)
	if !slices.Contains([]Grouping{BySignature, BySubject, ByStream, ByWorker}, opts.By) {
		return Overview{}, fmt.Errorf("deadletter: SurveyOptions.By is %q: use %q, %q, %q or %q", opts.By, BySignature, BySubject, ByStream,
			ByWorker)
	}
	if err := f.Validate(); err != nil {
		return Overview{}, err
	}
	info, err := s.info(ctx, s.cfg.Stream)
	if err != nil {
		return Overview{}, err
	}
	var o Overview
	groups, latest := make(map[Group]*Group), make(map[*Group]*jsapi.Message)
	messages, all, err := s.surveyed(ctx, f, opts.Newest, info.State)
	if err != nil {
		return Overview{}, err
	}
	o.Partial = !all
	for m, err := range messages {
		if err != nil {
			return Overview{}, err
		}
		at := m.Time.UTC()
		if o.Partial = o.Partial && !at.Before(f.Since); at.Before(f.Since) {
			continue
		}
		if !f.Until.IsZero() && !at.Before(f.Until) {
			break
		}
		if s.isInternal(m.Subject) {
			continue
		}
		e, err := s.pick(ctx, f, m)
		if err != nil {
			return Overview{}, err
		}
		if e != nil {
			latest[o.add(groups, e, f, opts)] = m
		}
	}
	for _, g := range groups {
		if g.Error, err = s.text(ctx, latest[g]); err != nil {
			return Overview{}, err
		}
		o.Groups = append(o.Groups, *g)
	}
	slices.SortFunc(o.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.LastAt.Compare(a.LastAt), cmp.Compare(a.Example, b.Example))
	})
	return o, nil
}

// text returns the error of a letter, "" for an entry that is none any more.
func (s *Store) text(ctx context.Context, m *jsapi.Message) (string, error) {
	e, err := s.open(ctx, m)
	if e == nil || err != nil {
		return "", err
	}
	if e.Kind == KindUnreadable && e.Problem != nil {
		return e.Problem.Error(), nil //nolint:nilerr // its error is what is asked for
	}
	return e.DeadLetter.Error, nil
}

// add counts a letter, and returns its group, nil for none. The key of a group has the properties that its letters share.
func (o *Overview) add(groups map[Group]*Group, e *Entry, f Filter, opts SurveyOptions) *Group {
	o.Total++
	l := &e.DeadLetter
	key := Group{By: opts.By, Kind: e.Kind, Stream: l.Stream}
	subjects := l.Subject
	switch opts.By {
	case BySubject:
		if f.Subject == "" {
			subjects = family(subjects)
		}
		key.Subjects = subjects
	case ByStream:
	case ByWorker:
		key.Worker = l.Worker
	default:
		key.Reason, key.Signature = l.Reason, l.Signature
	}
	g := groups[key]
	if g == nil && len(groups) == maxGroups {
		o.Others++
		return nil
	}
	if g == nil {
		g = new(key)
		g.FirstAt, g.Subjects = e.StoredAt, subjects
		groups[key] = g
	}
	g.Count++
	g.Example, g.LastAt = e.Sequence, e.StoredAt
	if opts.By != BySubject {
		g.Subjects = common(g.Subjects, subjects)
	}
	return g
}

// family returns the pattern of the subjects with the same first two tokens: the subject itself if it has at most two tokens.
func family(of string) string {
	tokens := strings.SplitN(of, ".", 3)
	if len(tokens) > 2 {
		tokens[2] = ">"
	}
	return strings.Join(tokens, ".")
}

// pick returns the entry of a message, or nil when the filter does not select it. It reads the body
// if the headers do not suffice. A message that has been removed in the meantime is not selected.
func (s *Store) pick(ctx context.Context, f Filter, m *jsapi.Message) (*Entry, error) {
	e, sure := s.classify(m)
	if !sure || e.Kind == KindStranded && f.Subject != "" {
		var err error
		if e, err = s.load(ctx, e.Sequence); e == nil || err != nil {
			return nil, err
		}
	}
	if !f.selects(e) {
		return nil, nil
	}
	return e, nil
}

// common returns the narrowest pattern that covers two subjects and has no wildcard but a ">" at its end. The first subject may be a
// pattern of this form.
func common(a, b string) string {
	if a == b {
		return a
	}
	left, right := strings.Split(strings.TrimSuffix(a, ".>"), "."), strings.Split(b, ".")
	n := 0
	for n < len(left) && n < len(right)-1 && left[n] == right[n] {
		n++
	}
	// A pattern "a.>" does not match "a": the last token of the shorter subject is not part of the pattern.
	if !strings.HasSuffix(a, ".>") && n == len(left) {
		n--
	}
	if n <= 0 {
		return ">"
	}
	return strings.Join(left[:n], ".") + ".>"
}

// Filter selects dead letters. Its fields are joined by "and"; the zero value selects everything in the stream. List, Survey, Replay and
// Discard with one filter select the same letters.
type Filter struct {
	// Before selects the letters with a smaller sequence. Defaults to all.
	Before uint64

	// Kind selects one kind of entry. Defaults to all.
	Kind Kind

	// Reason selects the jobs that were given up for this reason. Defaults to all.
	Reason worker.Reason

	// Sequences selects letters by their position in the dead letter stream. Defaults to
	// all.
	Sequences []uint64

	// Signature selects the errors of one kind, see worker.DeadLetter. Defaults to all.
	Signature string

	// Since selects the letters that the dead letter stream stored at this time or later. Defaults to all.
	Since time.Time

	// Stream selects the jobs of one stream. Defaults to all.
	Stream string

	// Subject is a pattern that the jobs' subjects must match, such as "jobs.mail.>".
	// Defaults to all.
	Subject string

	// Until selects the letters that the dead letter stream stored before this time. Defaults to all.
	Until time.Time

	// Worker selects the jobs that this worker gave up. Defaults to all.
	Worker string
}

// ParseTime parses a time that a person wrote for a [Filter]: in the form of RFC 3339, or as the time before now, such as 2h or 7d.
func ParseTime(now time.Time, text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%.50q: want how long ago, such as 2h or 7d, or a time such as 2006-01-02T15:04:05Z", text)
	}
	return now.Add(-ago), nil
}

// Validate returns an error that names every mistake in the filter.
func (f Filter) Validate() error {
	var bad error
	if f.Subject != "" {
		bad = subject.CheckPattern(f.Subject)
	}
	return errors.Join(
		validate.If(!slices.Contains([]Kind{"", KindFailed, KindStranded, KindUnreadable}, f.Kind),
			"deadletter: Filter.Kind is %q: use %q, %q or %q", f.Kind, KindFailed, KindStranded, KindUnreadable),
		validate.If(f.Stream != "" && !subject.IsName(f.Stream, maxName),
			"deadletter: Filter.Stream is %q: use 1 to 255 letters, digits, '-' and '_'", f.Stream),
		validate.If(bad != nil, "deadletter: Filter.Subject is %q: %w", f.Subject, bad),
		validate.If(!f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until),
			"deadletter: Filter.Since (%s) must be before Filter.Until (%s)", f.Since, f.Until))
}

// selects reports whether the filter selects a classified entry.
func (f Filter) selects(e *Entry) bool {
	l := &e.DeadLetter
	return (f.Before == 0 || e.Sequence < f.Before) && (f.Kind == "" || f.Kind == e.Kind) &&
		(f.Reason == "" || f.Reason == l.Reason) &&
		(f.Signature == "" || f.Signature == l.Signature) &&
		(f.Since.IsZero() || !e.StoredAt.Before(f.Since)) &&
		(f.Stream == "" || f.Stream == l.Stream) &&
		(f.Subject == "" || l.Subject != "" && subject.Matches(f.Subject, l.Subject)) &&
		(f.Until.IsZero() || e.StoredAt.Before(f.Until)) &&
		(f.Worker == "" || f.Worker == l.Worker)
}
