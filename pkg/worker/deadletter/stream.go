package deadletter

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// get reads a message from the stream's leader, because the answer of a replica may be outdated. It returns nil when there
// is none. One round trip.
func (s *Store) get(ctx context.Context, stream string, q jsapi.Query) (*jsapi.Message, error) {
	found, ok, err := s.api.Get(ctx, stream, q)

	switch {
	case err != nil:
		return nil, fmt.Errorf("deadletter: read from stream %s: %w", stream, err)
	case !ok:
		return nil, nil //nolint:nilnil // absence is an answer
	default:
		return &found, nil
	}
}

// remove removes messages of a stream. A message that is gone already is no error.
func (s *Store) remove(ctx context.Context, stream string, sequences ...uint64) error {
	for _, seq := range sequences {
		err := s.api.Delete(ctx, stream, seq)
		if err == nil {
			continue
		}

		// An answer may have been lost.
		if found, failed := s.get(ctx, stream, jsapi.Query{Sequence: seq}); failed != nil || found != nil {
			return fmt.Errorf("deadletter: remove message %d from stream %s: %w", seq, stream, err)
		}
	}
	return nil
}

// lastSequence is the sequence of the latest message of a stream, present or not.
func (s *Store) lastSequence(ctx context.Context, stream string) (uint64, error) {
	info, err := s.info(ctx, stream)
	return info.State.LastSeq, err
}

func (s *Store) info(ctx context.Context, stream string) (jetstream.StreamInfo, error) {
	var info jetstream.StreamInfo

	err := s.api.Ask(ctx, "STREAM.INFO."+stream, nil, &info)

	switch {
	case jsapi.IsNoStream(err):
		return info, fmt.Errorf("%w: %s", ErrNoStream, stream)
	case err != nil:
		return info, fmt.Errorf("deadletter: look up stream %s: %w", stream, err)
	}
	return info, nil
}
