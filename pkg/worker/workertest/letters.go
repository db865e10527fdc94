package workertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// letters returns the dead letters of a stream's jobs, oldest first within a stream: whatever the first part of their
// subject is.
func letters(ctx context.Context, js jetstream.JetStream, of string) (all []worker.DeadLetter, err error) {
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject("*."+of+".>"))
	for name := range names.Name() {
		found, err := lettersIn(ctx, js, name, of)
		if err != nil {
			return nil, err
		}

		all = append(all, found...)
	}

	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("look up the stream of dead letters: %w", err)
	}
	return all, nil
}

// lettersIn returns the dead letters of a stream's jobs that lie in the stream called name.
func lettersIn(ctx context.Context, js jetstream.JetStream, name, of string) (all []worker.DeadLetter, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}

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
