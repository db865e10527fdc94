package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/subject"
)

const (
	// maxSubjects bounds how many subjects of a stream are asked for: the server needs
	// about a second for a million.
	maxSubjects = 100_000

	// maxNamed bounds how many subjects are named.
	maxNamed = 100
)

// adopt makes a dead letter of a message that a foreign consumer left in its work queue:
// from then on it is as any other. First the letter is stored, then the message removed,
// last the advisory; doing it again after a crash in between does what is left.
func (s *Store) adopt(ctx context.Context, e *Entry) (*Entry, error) {
	queue, err := s.isWorkQueue(ctx, e.Letter.Stream)
	if err != nil {
		return nil, err
	}

	if !queue {
		return nil, s.notQueue(e)
	}

	letter := e.Letter
	letter.DeadAt = e.StoredAt

	sequence, err := s.adopted(ctx, letter)
	if err == nil && sequence == 0 {
		sequence, err = worker.PublishDeadLetter(ctx, s.js, s.cfg.DeadSubject, letter)
	}

	if err != nil {
		return nil, fmt.Errorf("deadletter: keep the message as a letter: %w", err)
	}

	if err := s.remove(ctx, letter.Stream, letter.Sequence); err != nil {
		return nil, err
	}

	if err := s.remove(ctx, s.cfg.Stream, e.Sequence); err != nil {
		return nil, err
	}

	kept, err := s.load(ctx, sequence)
	if err == nil && kept == nil {
		err = fmt.Errorf("%w: %d in stream %s", ErrNotFound, sequence, s.cfg.Stream)
	}

	return kept, err
}

// adopted finds the letter that an interrupted adoption has left, which the duplicate
// window may have forgotten. Zero for none.
func (s *Store) adopted(ctx context.Context, letter worker.DeadLetter) (uint64, error) {
	m, err := s.get(ctx, s.cfg.Stream, query{LastBySubject: s.cfg.DeadSubject + "." + letter.Stream + "." + letter.Subject})
	if m == nil || err != nil {
		return 0, err
	}

	have, err := worker.ParseDeadLetter(m.data)
	if err != nil || have.Sequence != letter.Sequence || have.Consumer != letter.Consumer || !have.EnqueuedAt.Equal(letter.EnqueuedAt) {
		return 0, nil //nolint:nilerr // somebody else's message is none of ours
	}

	return m.sequence, nil
}

func (s *Store) notQueue(e *Entry) error {
	return fmt.Errorf("%w: stream %s is no work queue: its message %d may be for other consumers as well, which would all get it again",
		ErrSkip, e.Letter.Stream, e.Letter.Sequence)
}

// Unclaimed is what lies in a work queue and no consumer takes.
type Unclaimed struct {
	// Complete is false when the stream has more than 100,000 subjects: they have not been
	// looked at then, and the rest says nothing.
	Complete bool

	// Messages is how many messages there are.
	Messages uint64

	// Stream is the stream.
	Stream string

	// Subjects are their subjects, those with the most messages first, 100 at most.
	Subjects []SubjectCount
}

// SubjectCount is how many messages a subject has.
type SubjectCount struct {
	// Messages is how many there are.
	Messages uint64

	// Subject is the subject.
	Subject string
}

// Stranded finds messages in a work queue whose subjects no consumer's filter matches: a
// worker that is gone, or a subject with a typing error. They are in no lag and no advisory.
// Jobs that wait for their time and records of finished ones, whose first token ends in
// "-later" or "-done", are left out.
//
// It costs one round trip, one for each 256 consumers, and one for the subjects of the
// stream, which the server counts for it; a stream of more than 100,000 subjects is not
// looked through. Messages that a consumer has given up are not here but in List, as
// [KindStranded].
func (s *Store) Stranded(ctx context.Context, stream string) (Unclaimed, error) {
	found := Unclaimed{Stream: stream}

	info, err := s.info(ctx, stream)
	if err != nil {
		return found, err
	}

	if info.Config.Retention != jetstream.WorkQueuePolicy {
		return found, fmt.Errorf("deadletter: stream %s is no work queue: what nobody takes is kept there on purpose", stream)
	}

	if info.State.NumSubjects > maxSubjects {
		return found, nil
	}

	filters, err := s.filters(ctx, stream)
	if err != nil {
		return found, err
	}

	var detail struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}

	if err := s.request(ctx, "STREAM.INFO."+stream, map[string]string{"subjects_filter": ">"}, &detail); err != nil {
		return found, fmt.Errorf("deadletter: subjects of stream %s: %w", stream, err)
	}

	found.Complete = true

	for name, count := range detail.State.Subjects {
		if taken(filters, name) {
			continue
		}

		found.Messages += count
		found.Subjects = append(found.Subjects, SubjectCount{Messages: count, Subject: name})
	}

	slices.SortFunc(found.Subjects, func(a, b SubjectCount) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Subject, b.Subject))
	})

	found.Subjects = found.Subjects[:min(len(found.Subjects), maxNamed)]

	return found, nil
}

func taken(filters []string, name string) bool {
	family, _, _ := strings.Cut(name, ".")

	return strings.HasSuffix(family, "-later") || strings.HasSuffix(family, "-done") ||
		slices.ContainsFunc(filters, func(filter string) bool { return subject.Matches(filter, name) })
}

// filters are the filters of all consumers of a stream.
func (s *Store) filters(ctx context.Context, stream string) ([]string, error) {
	var filters []string

	for offset := 0; ; {
		var page struct {
			Consumers []struct {
				Config jetstream.ConsumerConfig `json:"config"`
			} `json:"consumers"`
			Total int `json:"total"`
		}

		if err := s.request(ctx, "CONSUMER.LIST."+stream, json.RawMessage(fmt.Sprintf(`{"offset":%d}`, offset)), &page); err != nil {
			return nil, fmt.Errorf("deadletter: consumers of stream %s: %w", stream, err)
		}

		for _, c := range page.Consumers {
			switch {
			case c.Config.FilterSubject != "":
				filters = append(filters, c.Config.FilterSubject)
			case len(c.Config.FilterSubjects) > 0:
				filters = append(filters, c.Config.FilterSubjects...)
			default:
				filters = append(filters, ">")
			}
		}

		if offset += len(page.Consumers); offset >= page.Total || len(page.Consumers) == 0 {
			return filters, nil
		}
	}
}

// errRace is an outcome that trying again settles.
var errRace = errors.New("the job's key changed at this moment: try again")
