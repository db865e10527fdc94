package jsapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/retry"
)

// RetryWait is the default bound of the wait for a cluster that is not ready. An election lasts up to nine seconds, a node reports
// its room for streams every ten seconds, and a restarted machine takes longer.
const RetryWait = time.Minute

const (
	firstTry   = time.Second // the time without an answer after which the request is repeated
	lastTry    = 16 * time.Second
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// ErrNotReady is returned when a cluster did not become ready in time. It wraps the cluster's last error too.
var ErrNotReady = errors.New("the JetStream cluster is not ready")

// Retry calls try until it returns nil or an error that is not [IsTransient], and returns that result. After wait it returns
// ErrNotReady; when ctx ends, the cause of ctx. try is called at least once, with a context that ends after a second, doubled
// each time that was too short. try must be repeatable: a request without an answer may have been served.
func Retry(ctx context.Context, wait time.Duration, try func(context.Context) error) error {
	begun := time.Now()
	for n, length := 0, firstTry; ; n++ {
		once, cancel := context.WithTimeout(ctx, min(length, max(wait-time.Since(begun), firstTry)))
		err := try(once)
		if once.Err() != nil {
			length = min(2*length, lastTry)
		}
		cancel()
		denied.Failed(ctx, err)
		took, pause := time.Since(begun), retry.Wait(n, firstPause, lastPause)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case !IsTransient(err):
			return err
		case took+pause >= wait:
			return fmt.Errorf("%w after %s: %w (see that its nodes are up and connected, and try again)",
				ErrNotReady, took.Round(time.Millisecond), err)
		}
		retry.Jitter(ctx, pause)
	}
}

// temporary has true for the server's errors that a cluster returns only while it is not ready. Errors that are not listed are temporary
// if their status is 503.
var temporary = map[jetstream.ErrorCode]bool{
	CodeNoPeers:                            true, // too few nodes are known, or have reported room
	CodeNotLeader:                          true,
	CodeNoCluster:                          false,
	CodeNoAccount:                          false,
	CodeNotInCluster:                       false,
	CodeStreamAway:                         true,
	CodeConsumerAway:                       true,
	jetstream.JSErrCodeJetStreamNotEnabled: false,
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: false,
}

// IsTransient reports whether a request to JetStream can end with err while the cluster is not ready: no answer, no connection, no
// responders, or an answer that it cannot be done now. The same request may succeed a little later.
//
// Two errors that can be lasting count as transient: too few nodes for the replicas requested, and too little room on them.
func IsTransient(err error) bool {
	for _, lost := range []error{
		context.DeadlineExceeded, nats.ErrDisconnected, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	if is, listed := temporary[api.ErrorCode]; listed {
		return is
	}
	return api.Code == http.StatusServiceUnavailable
}
