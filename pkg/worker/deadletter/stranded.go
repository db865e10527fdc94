package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	// maxSubjects is the largest number of subjects of a stream that are requested: the server needs about a second for a million.
	maxSubjects = 100_000

	// maxNamed is the largest number of subjects in a result.
	maxNamed = 100
)

// adopt makes a dead letter of a message that a foreign consumer left in its work queue. It stores the letter, then removes
// the message, then the advisory. After a crash in between, another call completes the rest.
func (s *Store) adopt(ctx context.Context, e *Entry) (*Entry, error) {
	letter := e.DeadLetter
	letter.DeadAt = e.StoredAt
	sequence, err := s.adopted(ctx, letter)
	if err == nil && sequence == 0 {
		sequence, err = worker.PublishDeadLetter(ctx, s.js, s.cfg.DeadSubject, letter)
		err = s.unheard(ctx, err, s.cfg.Stream, s.letterSubject(letter))
	}
	if err != nil {
		return nil, fmt.Errorf("deadletter: keep the message as a letter: %w", err)
	}
	if _, err := s.remove(ctx, letter.Stream, letter.Sequence); err != nil {
		return nil, err
	}
	if _, err := s.remove(ctx, s.cfg.Stream, e.Sequence); err != nil {
		return nil, err
	}
	kept, err := s.load(ctx, sequence)
	if err == nil && kept == nil {
		err = fmt.Errorf("%w: %d in stream %s", ErrNotFound, sequence, s.cfg.Stream)
	}
	return kept, err
}

// adopted returns the sequence of the letter that an interrupted adoption has left, zero for none. That letter may be older than the
// duplicate window.
func (s *Store) adopted(ctx context.Context, letter worker.DeadLetter) (uint64, error) {
	m, err := s.get(ctx, s.cfg.Stream, jsapi.Query{LastBySubject: s.letterSubject(letter)})
	if m == nil || err != nil {
		return 0, err
	}
	have, err := worker.ParseDeadLetter(m.Data)
	if err != nil || have.Sequence != letter.Sequence || have.Consumer != letter.Consumer || !have.EnqueuedAt.Equal(letter.EnqueuedAt) {
		return 0, nil //nolint:nilerr // another program's message
	}
	return m.Sequence, nil
}

func (s *Store) letterSubject(l worker.DeadLetter) string {
	return s.cfg.DeadSubject + "." + l.Stream + "." + l.Subject
}

// Unclaimed describes the messages of a work queue that no consumer delivers.
type Unclaimed struct {
	// Complete is false when the stream has more than 100,000 subjects. Stranded does not examine them then, and the other
	// fields prove nothing.
	Complete bool

	// Messages is the number of messages.
	Messages uint64

	// Stream is the stream.
	Stream string

	// Subjects are the subjects of the messages, those with the most messages first, 100 at most.
	Subjects []SubjectCount
}

// SubjectCount is the number of messages of a subject.
type SubjectCount struct {
	// Messages is the number of messages.
	Messages uint64 `json:"messages"`

	// PassedBy is the consumer that takes the subject and has passed these messages: it counts them as acknowledged. It is
	// empty when no consumer takes the subject.
	PassedBy string `json:"passed_by,omitempty"`

	// Subject is the subject.
	Subject string `json:"subject"`
}

// Stranded finds messages in a work queue that no consumer will deliver. Neither the lag of a consumer nor an advisory shows
// them:
//
//   - those whose subjects no consumer's filter matches: the worker is gone, or the subject has a typing error. Delayed jobs and records
//     of finished ones, whose first token ends in "-later" or "-done", are left out;
//   - those before the ack floor of the consumer that takes them (PassedBy), 100 at most. Either the job was worked, and a server without
//     replicas that was shut down, ran out of disk or lost its power has kept the acknowledgement and not the removal; then they can be
//     deleted. Or the consumer was given the subject when it had passed them, and the job never ran; then they are delivered when the
//     consumer is deleted and made again. Or the consumer gave them up at its MaxDeliver; then they are in List as well, as
//     [KindStranded]. Three servers delete the first two kinds by themselves.
//
// It costs one round trip, one for each 256 consumers, one for each of their filters and each passed message, and one for the subjects of
// the stream, which the server has to count. A stream of more than 100,000 subjects is not searched.
func (s *Store) Stranded(ctx context.Context, stream string) (Unclaimed, error) {
	found := Unclaimed{Stream: stream}
	info, err := s.info(ctx, stream)
	if err != nil {
		return found, err
	}
	if info.Config.Retention != jetstream.WorkQueuePolicy {
		return found, fmt.Errorf("deadletter: stream %s is no work queue: it keeps messages that no consumer takes on purpose", stream)
	}
	if info.State.NumSubjects > maxSubjects {
		return found, nil
	}
	var takers *jobmsg.Takers
	err = jsapi.Retry(ctx, patience, func(context.Context) (err error) {
		takers, err = jobmsg.ListTakers(ctx, s.api, stream)
		return err
	})
	if err != nil {
		return found, fmt.Errorf("deadletter: %w", err)
	}
	if found.Subjects, err = s.untaken(ctx, stream, takers); err != nil {
		return found, err
	}
	passed, err := s.passed(ctx, info, takers)
	if err != nil {
		return found, err
	}
	found.Complete = true
	found.Subjects = append(found.Subjects, passed...)
	for _, counted := range found.Subjects {
		found.Messages += counted.Messages
	}
	slices.SortFunc(found.Subjects, func(a, b SubjectCount) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Subject, b.Subject))
	})
	found.Subjects = found.Subjects[:min(len(found.Subjects), maxNamed)]
	return found, nil
}

// StrandedIn is [Store.Stranded] without a stream of dead letters, which not every program has.
func StrandedIn(ctx context.Context, js jetstream.JetStream, stream string) (Unclaimed, error) {
	cfg := Config{}.withDefaults()
	return (&Store{api: jsapi.New(js, cfg.RequestTimeout), cfg: cfg, js: js}).Stranded(ctx, stream)
}

// untaken counts the messages whose subjects no consumer takes.
func (s *Store) untaken(ctx context.Context, stream string, takers *jobmsg.Takers) ([]SubjectCount, error) {
	var detail struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := s.ask(ctx, "STREAM.INFO."+stream, map[string]string{"subjects_filter": ">"}, &detail); err != nil {
		return nil, fmt.Errorf("deadletter: subjects of stream %s: %w", stream, err)
	}
	var all []SubjectCount
	for name, count := range detail.State.Subjects {
		if jobmsg.KindOf(name) == jobmsg.Job && takers.Of(name) == nil {
			all = append(all, SubjectCount{Messages: count, Subject: name})
		}
	}
	return all, nil
}

// passed counts the messages before the ack floors of the consumers that take them.
func (s *Store) passed(ctx context.Context, info jetstream.StreamInfo, takers *jobmsg.Takers) ([]SubjectCount, error) {
	counts, left := make(map[SubjectCount]uint64), maxNamed // without Messages
	for _, t := range takers.All {
		for _, filter := range t.Filters {
			for from := info.State.FirstSeq; from <= t.Floor && left > 0; left-- {
				m, err := s.get(ctx, info.Config.Name, jsapi.Query{NextBySubject: filter, Sequence: from})
				if err != nil {
					return nil, err
				}
				if m == nil || m.Sequence > t.Floor {
					break
				}
				counts[SubjectCount{PassedBy: t.Name, Subject: m.Subject}]++
				from = m.Sequence + 1
			}
		}
	}
	var all []SubjectCount
	for of, n := range counts {
		of.Messages = n
		all = append(all, of)
	}
	return all, nil
}
