package natstest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	firstTry      = 500 * time.Millisecond
	lastTry       = 16 * time.Second
	pauseOfRetry  = 20 * time.Millisecond
	noPlaceOnPeer = 10005 // "no suitable peers for placement"
)

// UntilAnswered asks a cluster until it answers, and returns the answer: nil or
// a refusal. While the nodes elect a leader, which a busy machine may make them
// do at any time, requests get lost, or are refused because nobody leads or the
// new leader has not heard yet what room the others have. A try that runs out of
// time is followed by one with twice as much. What ask does must bear repetition:
// a lost answer does not mean that nothing was done. The test fails after two
// minutes.
func UntilAnswered(t testing.TB, ask func(ctx context.Context) error) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for length := firstTry; ; {
		try, cancel := context.WithTimeout(ctx, length)
		err := ask(try)

		if try.Err() != nil {
			length = min(2*length, lastTry)
		}

		cancel()

		if answered(err) {
			return err
		}

		select {
		case <-ctx.Done():
			t.Fatalf("no answer within %s: %v", patience, err)
		case <-time.After(pauseOfRetry):
		}
	}
}

// answered tells a result from what an election leaves one with.
func answered(err error) bool {
	for _, lost := range []error{
		context.DeadlineExceeded, jetstream.ErrNoStreamResponse, nats.ErrNoResponders, nats.ErrTimeout,
	} {
		if errors.Is(err, lost) {
			return false
		}
	}

	var api *jetstream.APIError

	return !errors.As(err, &api) || api.Code != http.StatusServiceUnavailable && api.ErrorCode != noPlaceOnPeer
}
