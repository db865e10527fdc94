package workertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// letters returns the dead letters of a stream's jobs, oldest first: whatever the first
// part of their subject is, they lie in a stream that holds dead letters only.
func letters(ctx context.Context, js jetstream.JetStream, of string) ([]worker.DeadLetter, error) {
	name, err := js.StreamNameBySubject(ctx, "*."+of+".>")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("look up the stream of dead letters: %w", err)
	}

	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}

	var all []worker.DeadLetter

	for seq := max(stream.CachedInfo().State.FirstSeq, 1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("read dead letter %d of %s: %w", seq, name, err)
		}

		letter, err := worker.ParseDeadLetter(msg.Data)
		if err == nil && letter.Stream == of {
			all = append(all, letter)
		}
	}
	return all, nil
}
