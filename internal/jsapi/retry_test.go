package jsapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var errPeerOffline = &jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, peer offline"}

func TestTransient(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil:                      false,
		context.Canceled:         false,
		context.DeadlineExceeded: true,
		io.EOF:                   false,
		nats.ErrConnectionClosed: false,
		nats.ErrDisconnected:     true,
		nats.ErrNoResponders:     true,
		nats.ErrTimeout:          true,

		jetstream.ErrJetStreamNotEnabled:           false,
		jetstream.ErrJetStreamNotEnabledForAccount: false,
		jetstream.ErrNoStreamResponse:              true,
		jetstream.ErrStreamNotFound:                false,
		jetstream.ErrStreamNameAlreadyInUse:        false,

		errPeerOffline: true,
		&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}:            true,
		&jetstream.APIError{Code: 500, ErrorCode: 10009, Description: "JetStream cluster can not handle request"}:            true,
		&jetstream.APIError{Code: 503, ErrorCode: 10010, Description: "JetStream clustering support required"}:               false,
		&jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}:                              true,
		&jetstream.APIError{Code: 500, ErrorCode: 10052, Description: "stream configuration for update can not change name"}: false,
		&jetstream.APIError{Code: 400, ErrorCode: 10065, Description: "subjects overlap with an existing stream"}:            false,
		&jetstream.APIError{Code: 500, ErrorCode: 10074, Description: "replicas > 1 not supported in non-clustered mode"}:    false,
		&jetstream.APIError{Code: 500, ErrorCode: 10118, Description: "stream is offline"}:                                   true,
		&jetstream.APIError{Code: 500, ErrorCode: 10119, Description: "consumer is offline"}:                                 true,
		&jetstream.APIError{Code: 500, ErrorCode: 10194, Description: "stream is offline: unsupported"}:                      false,
	} {
		for _, err := range []error{err, fmt.Errorf("stream S: %w", err)} {
			check.Equal(t, jsapi.IsTransient(err), want, fmt.Sprintf("%v", err))
		}
	}
}

func TestDoTriesUntilTheClusterIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		for name, want := range map[string]error{"done": nil, "an answer": refused} {
			tries := 0
			err := jsapi.Retry(t.Context(), time.Minute, func(context.Context) error {
				tries++
				if tries < 20 {
					return errPeerOffline
				}
				return want
			})
			check.That(t, errors.Is(err, want) && tries == 20, "%s: got %v after %d tries, want %v after 20", name, err, tries, want)
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = time.Minute
		for name, try := range map[string]func(context.Context) error{
			"refused": func(context.Context) error { return errPeerOffline },
			"silent": func(ctx context.Context) error {
				<-ctx.Done()
				return errors.Join(errPeerOffline, ctx.Err())
			},
		} {
			begun := time.Now()
			err := jsapi.Retry(t.Context(), wait, try)
			took := time.Since(begun)
			check.That(t, took <= wait+time.Second && took >= wait-2*time.Second, "%s: gave up after %s, want %s", name, took, wait)
			check.That(t, errors.Is(err, jsapi.ErrNotReady) && errors.Is(err, errPeerOffline) && strings.Contains(err.Error(), "nodes are up"),
				"%s: got %v, want ErrNotReady with its cause and a remedy", name, err)
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		begun := time.Now()
		err := jsapi.Retry(ctx, time.Minute, func(context.Context) error { return errPeerOffline })
		if took := time.Since(begun); took != time.Second || !errors.Is(err, enough) || !errors.Is(err, errPeerOffline) {
			t.Errorf("got %v after %s, want both errors after a second", err, took)
		}
	})
}

// A try that its context interrupts does not hide why.
func TestDoReportsWhyItWasInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	denied := errors.New("denied")
	err := jsapi.Retry(ctx, time.Minute, func(ctx context.Context) error {
		cancel(denied)
		return ctx.Err()
	})
	check.That(t, errors.Is(err, denied), "got %v, want the cause", err)
}

// A request that was lost is repeated soon, and one that takes long has the time.
func TestDoGivesEachTryMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lengths []time.Duration
		err := jsapi.Retry(t.Context(), time.Minute, func(ctx context.Context) error {
			begun := time.Now()
			select {
			case <-ctx.Done():
				lengths = append(lengths, time.Since(begun))
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return nil
			}
		})
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
		diff := cmp.Diff(want, lengths)
		check.That(t, err == nil && diff == "", "%v, -want +got\n%s", err, diff)
	})
}

func TestDoTriesOnceWithoutWaiting(t *testing.T) {
	t.Parallel()
	tries := 0
	err := jsapi.Retry(t.Context(), 0, func(context.Context) error {
		tries++
		return errPeerOffline
	})
	check.That(t, tries == 1 && errors.Is(err, jsapi.ErrNotReady), "got %v after %d tries, want ErrNotReady after one", err, tries)
}
