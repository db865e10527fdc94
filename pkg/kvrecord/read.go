package kvrecord

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/directget"
)

// Get reads a record from any replica, which may lag behind. A subject without one is no error: the Revision is 0. It asks
// until it is answered; the errors match ErrUnavailable, ErrClosed or ctx's cause. One round trip.
func (s *Stream) Get(ctx context.Context, subject string) (Record, error) {
	return s.read(ctx, subject, s.any)
}

// Latest reads a record from the stream's leader, otherwise as Get does. A leader that was deposed and does not know it may
// answer with a record that was replaced. One round trip.
func (s *Stream) Latest(ctx context.Context, subject string) (Record, error) {
	return s.read(ctx, subject, s.latest)
}

// Next reads the first record at from or later whose subject matches filter, from the stream's leader. Its Revision is 0 when
// there is none. One round trip.
func (s *Stream) Next(ctx context.Context, filter string, from uint64) (Record, error) {
	return s.read(ctx, filter, func(ctx context.Context, filter string) (Record, error) {
		return s.leader(ctx, query{NextBySubject: filter, Sequence: max(from, 1)})
	})
}

// At reads the record at a revision, from the stream's leader. Its Revision is 0 when it is gone. One round trip.
func (s *Stream) At(ctx context.Context, revision uint64) (Record, error) {
	return s.read(ctx, fmt.Sprintf("revision %d", revision), func(ctx context.Context, _ string) (Record, error) {
		return s.leader(ctx, query{Sequence: revision})
	})
}

// GetMany reads the records of many subjects from any replica, in no particular order. A subject without one is left out. One
// round trip for each 512 subjects.
func (s *Stream) GetMany(ctx context.Context, subjects []string) ([]Record, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	messages, err := s.many.Last(ctx, s.name, subjects)
	if err != nil {
		return nil, s.failed(ctx, fmt.Sprintf("read %d subjects", len(subjects)), err)
	}
	last := make(map[string]int, len(messages))
	records := make([]Record, 0, len(messages))
	for _, m := range messages {
		at, twice := last[m.Subject] // it was written meanwhile
		switch {
		case !twice:
			last[m.Subject] = len(records)
			records = append(records, s.record(m))
		case m.Sequence > records[at].Revision:
			records[at] = s.record(m)
		}
	}
	return records, nil
}

// read asks until it is answered.
func (s *Stream) read(ctx context.Context, what string, once func(context.Context, string) (Record, error)) (Record, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		found, err := once(ctx, what)
		if err == nil {
			return found, nil
		}
		if isPermanent(err) || !backoff.Pause(ctx, wait) {
			return Record{}, s.refused(ctx, "read "+what, err)
		}
	}
}

// any reads the last record of a subject from any replica, once.
func (s *Stream) any(ctx context.Context, subject string) (Record, error) {
	m := nats.NewMsg(s.api + "DIRECT.GET." + s.name + "." + subject)
	reply, err := s.single.Request(ctx, m, s.cfg.Try)
	if err != nil {
		return Record{}, err
	}
	found, ok, err := directget.Answer(reply)
	if err != nil || !ok {
		return s.absent(subject), err
	}
	return s.record(found), nil
}

// latest reads the last record of a subject from the leader, once.
func (s *Stream) latest(ctx context.Context, subject string) (Record, error) {
	found, err := s.leader(ctx, query{LastBySubject: subject})
	if err == nil && found.Revision == 0 {
		found.Subject = subject
	}
	return found, err
}

// query selects one record.
type query struct {
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
	Sequence      uint64 `json:"seq,omitempty"`
}

// leader asks the stream's leader for a record, once.
func (s *Stream) leader(ctx context.Context, q query) (Record, error) {
	var answer struct {
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	switch err := s.ask(ctx, "STREAM.MSG.GET.", q, &answer); {
	case hasCode(err, codeNoMessage):
		return s.absent(""), nil
	case err != nil:
		return Record{}, err
	}
	m := answer.Message
	found := directget.Message{Subject: m.Subject, Sequence: m.Sequence, Time: m.Time, Data: m.Data, AsOf: m.Sequence}
	if len(m.Header) > 0 {
		var err error
		if found.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Record{}, fmt.Errorf("the headers of revision %d: %w", m.Sequence, err)
		}
	}
	return s.record(found), nil
}

// ask sends a request about the stream to its leader, once, and decodes the answer, unless that is nil.
func (s *Stream) ask(ctx context.Context, method string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	m := nats.NewMsg(s.api + method + s.name)
	m.Data = body
	reply, err := s.single.Request(ctx, m, s.cfg.Try)
	if err != nil {
		return err
	}
	var failure struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &failure); err != nil {
		return fmt.Errorf("the answer to %s is not JSON: %w", method, err)
	}
	if failure.Error != nil {
		return failure.Error
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("the answer to %s: %w", method, err)
	}
	return nil
}
