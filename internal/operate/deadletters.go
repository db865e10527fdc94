package operate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// The actions on dead letters, in the audit and as commands of expediter dead.
const (
	Discard = "discard"
	Replay  = "replay"
)

// deadTarget begins the targets of actions on dead letters in the audit.
const deadTarget = "dead letters"

// DeadLetters selects dead letters, as a person has written it.
type DeadLetters struct {
	Account, Stream string // of the dead letters

	Before, JobStream, Kind, Reason, Signature, Since, Subject, Worker, Until string
}

// Fields implements [Filter].
func (l *DeadLetters) Fields() []Field {
	kinds := []string{string(deadletter.KindFailed), string(deadletter.KindStranded), string(deadletter.KindUnreadable)}
	reasons := []string{
		string(worker.ReasonExhausted), string(worker.ReasonDiscarded), string(worker.ReasonUndecodable),
		string(deadletter.ReasonMaxDeliveries), string(deadletter.ReasonTerminated),
	}
	return []Field{
		{"account", "", nil, &l.Account},
		{"stream", "", nil, &l.Stream},
		{"before", "with a smaller number than this dead letter", nil, &l.Before},
		{"job-stream", "stream of the jobs", nil, &l.JobStream},
		{"kind", "failed, stranded or unreadable", kinds, &l.Kind},
		{"reason", "why jobs were given up: exhausted, discarded, undecodable, max_deliveries or terminated", reasons, &l.Reason},
		{"signature", "signature of a group of errors, as dead groups lists it", nil, &l.Signature},
		{"since", "given up at this time or later: 2h, 7d, or 2006-01-02T15:04:05Z", nil, &l.Since},
		{"subject", "pattern of the jobs' subjects, such as 'jobs.mail.>'", nil, &l.Subject},
		{"worker", "worker that gave the jobs up", nil, &l.Worker},
		{"until", "given up before this time, as --since", nil, &l.Until},
	}
}

// All reports whether all dead letters are selected.
func (l DeadLetters) All() bool { return l == DeadLetters{Account: l.Account, Stream: l.Stream} }

// ParseSequences reads the numbers of dead letters.
func ParseSequences(texts []string) ([]uint64, error) {
	sequences := make([]uint64, 0, len(texts))
	for _, text := range texts {
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil || seq == 0 {
			return nil, fmt.Errorf("%.30q is not the number of a dead letter: expediter dead list shows it in its first column", text)
		}
		sequences = append(sequences, seq)
	}
	return sequences, nil
}

// Filter returns the filter for the dead letters with these sequences, nil for any. now is the server's time.
func (l *DeadLetters) Filter(now time.Time, sequences []uint64) (deadletter.Filter, error) {
	f := deadletter.Filter{
		Kind: deadletter.Kind(l.Kind), Reason: worker.Reason(l.Reason), Sequences: sequences, Signature: l.Signature, Stream: l.JobStream,
		Subject: l.Subject, Worker: l.Worker,
	}
	at := func(name, text string) (at time.Time, err error) {
		if text == "" {
			return at, nil
		}
		if at, err = deadletter.ParseTime(now, text); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return at, err
	}
	var since, until, before error
	if l.Before != "" {
		var last []uint64
		if last, before = ParseSequences([]string{l.Before}); before == nil {
			f.Before = last[0]
		}
	}
	f.Since, since = at("since", l.Since)
	f.Until, until = at("until", l.Until)
	return f, errors.Join(before, since, until, f.Validate())
}

// Check returns every mistake that is found without the server's time.
func (l *DeadLetters) Check() error {
	_, err := l.Filter(time.Now(), nil)
	return err
}

// Within returns the selection of a group's dead letters.
func (l DeadLetters) Within(g deadletter.Group) *DeadLetters {
	f := g.Filter(deadletter.Filter{
		Reason: worker.Reason(l.Reason), Signature: l.Signature, Subject: l.Subject, Worker: l.Worker,
	})
	l.JobStream, l.Kind, l.Reason, l.Signature = f.Stream, string(f.Kind), string(f.Reason), f.Signature
	l.Subject, l.Worker = f.Subject, f.Worker
	return &l
}

// Target describes the selection in a record of the audit. A signature or a subject may contain the id of a user: the record has their
// fingerprints. Commands name the stream DEAD and pages do not: it is left out, so that both write the same.
func (l DeadLetters) Target(sequences []uint64) string {
	var text strings.Builder
	text.WriteString(deadTarget)
	if l.Stream == contracts.StreamDead {
		l.Stream = ""
	}
	for _, secret := range []*string{&l.Signature, &l.Subject} {
		if *secret != "" {
			*secret = "sha256:" + audit.User(*secret)
		}
	}
	named := strings.Trim(fmt.Sprint(sequences), "[]")
	for _, f := range append([]Field{{Name: "sequences", Value: &named}}, l.Fields()...) {
		if *f.Value != "" {
			fmt.Fprintf(&text, " %s=%q", f.Name, *f.Value)
		}
	}
	return text.String()
}

// CommandLine returns the expediter dead command for an action on the selection, or on the dead letters with these sequences.
func (l *DeadLetters) CommandLine(action string, sequences []uint64, more ...string) string {
	var args []string
	if l.All() && len(sequences) == 0 {
		args = []string{"--all"}
	}
	for _, seq := range sequences {
		args = append(args, strconv.FormatUint(seq, 10))
	}
	return Line("dead "+action, l, append(args, more...)...)
}

// CutTarget returns a target without its times, and reports whether [DeadLetters.Target] made it for a filter, not for named sequences.
func CutTarget(target string) (filter string, ok bool) {
	filter, _, _ = strings.Cut(target, " until=")
	if start, rest, ok := strings.Cut(filter, " since="); ok {
		_, rest, _ = strings.Cut(rest, " ")
		filter = strings.TrimSpace(start + " " + rest)
	}
	return filter, strings.HasPrefix(target, deadTarget) && !strings.HasPrefix(target, deadTarget+" sequences=")
}
