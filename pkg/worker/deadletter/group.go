package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/mistake"
	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker"
)

// maxGroups bounds the number of groups.
const maxGroups = 1000

// Group describes the letters of jobs that were given up after errors of one kind.
type Group struct {
	// Count is how many there are.
	Count int

	// Example is the sequence of the latest of them, for Get.
	Example uint64

	// FirstAt and LastAt are when the first and the latest of them were stored.
	FirstAt, LastAt time.Time

	// Kind is the kind of the entries.
	Kind Kind

	// Reason is why the jobs were given up.
	Reason worker.Reason

	// Signature is what their errors have in common, see worker.DeadLetter.
	Signature string

	// Stream is the stream that held the jobs.
	Stream string

	// Subjects is the narrowest pattern that covers the jobs' subjects, such as "jobs.mail.>". It is empty for stranded
	// messages, whose advisories have no subject.
	Subjects string
}

// Filter returns the filter that selects the letters of the group among those that within selects.
func (g Group) Filter(within Filter) Filter {
	within.Kind, within.Reason, within.Signature, within.Stream = g.Kind, g.Reason, g.Signature, g.Stream
	return within
}

// Overview summarises the letters of a dead letter stream.
type Overview struct {
	// Groups are the groups, the largest first.
	Groups []Group

	// Others is how many letters are in no group because there are more than 1,000 groups.
	Others int

	// Total is how many letters the filter selects, those of all groups and the others.
	Total int
}

// groupKey is equal for the letters of one group.
type groupKey struct {
	kind      Kind
	reason    worker.Reason
	signature string
	stream    string
}

// Groups groups the letters that the filter selects by the signature of their errors. It reads headers only, about a hundred
// bytes for each letter, and returns 1,000 groups at most. A filter on subjects costs a round trip for each stranded
// message.
func (s *Store) Groups(ctx context.Context, f Filter) (Overview, error) {
	var overview Overview

	groups := make(map[groupKey]*Group)

	for m, err := range s.messages(ctx, f, OldestFirst, true) {
		if err != nil {
			return Overview{}, err
		}

		e, err := s.glance(ctx, f, m)
		if err != nil {
			return Overview{}, err
		}

		if e == nil || !f.selects(e) {
			continue
		}

		overview.Total++

		key := groupKey{e.Kind, e.Letter.Reason, e.Letter.Signature, e.Letter.Stream}

		g := groups[key]
		if g == nil && len(groups) == maxGroups {
			overview.Others++

			continue
		}

		if g == nil {
			g = &Group{
				FirstAt: e.StoredAt, Kind: e.Kind, Reason: e.Letter.Reason, Signature: e.Letter.Signature, Stream: e.Letter.Stream,
				Subjects: e.Letter.Subject,
			}
			groups[key] = g
		}

		g.Count++
		g.Example, g.LastAt, g.Subjects = e.Sequence, e.StoredAt, common(g.Subjects, e.Letter.Subject)
	}

	for _, g := range groups {
		overview.Groups = append(overview.Groups, *g)
	}

	slices.SortFunc(overview.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.LastAt.Compare(a.LastAt), cmp.Compare(a.Example, b.Example))
	})
	return overview, nil
}

// glance classifies a message by its headers, and reads the body only when they do not suffice. It returns nil when the
// message has been removed meanwhile.
func (s *Store) glance(ctx context.Context, f Filter, m *jsapi.Message) (*Entry, error) {
	e, sure := s.classify(m)
	if sure && (e.Kind != KindStranded || f.Subject == "") {
		return e, nil
	}
	return s.load(ctx, m.Sequence)
}

// common returns the narrowest pattern that ends in ">" or has none over two subjects, the
// first of which may be such a pattern.
func common(a, b string) string {
	if a == b {
		return a
	}

	left, right := strings.Split(strings.TrimSuffix(a, ".>"), "."), strings.Split(b, ".")

	n := 0
	for n < len(left) && n < len(right)-1 && left[n] == right[n] {
		n++
	}

	// A pattern "a.>" does not match "a": the shorter one keeps its last token out.
	if !strings.HasSuffix(a, ".>") && n == len(left) {
		n--
	}

	if n <= 0 {
		return ">"
	}
	return strings.Join(left[:n], ".") + ".>"
}

// Filter selects dead letters. Its fields are joined by "and"; the zero value selects
// everything in the stream. Listing, grouping, replaying and discarding with one filter
// select the same letters.
type Filter struct {
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
}

// Validate reports everything that is wrong with the filter at once.
func (f Filter) Validate() error {
	var errs []error

	switch f.Kind {
	case "", KindLetter, KindStranded, KindUnreadable:
	default:
		errs = append(errs, fmt.Errorf("deadletter: Filter.Kind is %q: use %q, %q or %q", f.Kind, KindLetter, KindStranded, KindUnreadable))
	}

	errs = append(errs, mistake.If(f.Stream != "" && !safeName.MatchString(f.Stream),
		"deadletter: Filter.Stream is %q: use 1 to 255 letters, digits, '-' and '_'", f.Stream))

	if f.Subject != "" {
		if err := subject.CheckPattern(f.Subject); err != nil {
			errs = append(errs, fmt.Errorf("deadletter: Filter.Subject is %q: %w", f.Subject, err))
		}
	}

	errs = append(errs, mistake.If(!f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until),
		"deadletter: Filter.Since (%s) must be before Filter.Until (%s)", f.Since, f.Until))
	return errors.Join(errs...)
}

// selects reports whether the filter selects a classified entry.
func (f Filter) selects(e *Entry) bool {
	l := &e.Letter
	return (f.Kind == "" || f.Kind == e.Kind) &&
		(f.Reason == "" || f.Reason == l.Reason) &&
		(f.Signature == "" || f.Signature == l.Signature) &&
		(f.Since.IsZero() || !e.StoredAt.Before(f.Since)) &&
		(f.Stream == "" || f.Stream == l.Stream) &&
		(f.Subject == "" || l.Subject != "" && subject.Matches(f.Subject, l.Subject)) &&
		(f.Until.IsZero() || e.StoredAt.Before(f.Until))
}
