package deadletter

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// claim returns the headers with which the server refuses the replay of a unique job whose key another job holds. For other
// jobs it returns none.
func (s *Store) claim(ctx context.Context, e *Entry) (map[string]string, error) {
	k, ok := keyOf(e)
	if !ok {
		return nil, nil //nolint:nilnil // ranging over no headers is fine
	}

	holder, err := s.get(ctx, e.Letter.Stream, jsapi.Query{LastBySubject: k.Any()})
	if err != nil {
		return nil, err
	}

	var last uint64

	if holder != nil {
		if !isRecordOf(e, k, holder) {
			return nil, &TakenError{Sequence: holder.Sequence, Subject: holder.Subject}
		}

		last = holder.Sequence
	}
	return map[string]string{
		jetstream.ExpectedLastSubjSeqHeader:     strconv.FormatUint(last, 10),
		jetstream.ExpectedLastSubjSeqSubjHeader: k.Any(),
	}, nil
}

// keyOf is the key of a unique job.
func keyOf(e *Entry) (key.Key, bool) {
	if len(e.Letter.Header[worker.HeaderKeep]) == 0 {
		return key.Key{}, false
	}

	k, err := key.Of(e.Letter.Subject)
	return k, err == nil
}

// isRecordOf reports whether a message is the record of this job's death.
func isRecordOf(e *Entry, k key.Key, m *jsapi.Message) bool {
	return m.Subject == k.Done() && m.Header.Get(worker.HeaderID) == e.Letter.ID &&
		m.Header.Get(worker.HeaderSequence) == strconv.FormatUint(e.Letter.Sequence, 10) &&
		worker.State(m.Header.Get(worker.HeaderState)) == worker.StateDead
}

// holderOf finds the job in whose favour the server refused a publication: another job, or this very one, published by an
// attempt whose answer was lost.
func (s *Store) holderOf(ctx context.Context, e *Entry, t ticket) (uint64, error) {
	place := e.Letter.Subject
	if k, unique := keyOf(e); unique {
		place = k.Any()
	}

	holder, err := s.get(ctx, e.Letter.Stream, jsapi.Query{LastBySubject: place})

	switch {
	case err != nil:
		return 0, err
	case holder == nil:
		return 0, fmt.Errorf("deadletter: letter %d: %w", e.Sequence, errRace)
	case holder.Header.Get(worker.HeaderReplayRecord) == strconv.FormatUint(t.record, 10):
		return holder.Sequence, nil
	}
	return 0, &TakenError{Sequence: holder.Sequence, Subject: holder.Subject}
}
