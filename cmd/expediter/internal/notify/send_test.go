package notify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// recorder is a target that keeps the events that it gets, and lets other goroutines go first now and then.
type recorder struct {
	mu     sync.Mutex
	events []recipient.Event
	fail   map[string]error
	rand   *rand.Rand
}

func (b *recorder) Publish(_ context.Context, e recipient.Event) (Outcome, error) {
	b.mu.Lock()
	n := b.rand.IntN(4)
	b.mu.Unlock()
	for range n {
		runtime.Gosched()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.fail[e.EventID]; err != nil {
		return "", err
	}
	b.events = append(b.events, e)
	return Accepted, nil
}

// numbered yields n events of a few aggregates, and then an error if there is one.
func numbered(n int, last error) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for i := range n {
			m := Message{
				Document: rows.Record{File: "f", Line: i + 1},
				Event:    recipient.Event{EventID: strconv.Itoa(i), AggregateType: "T", AggregateID: strconv.Itoa(i % 7)},
			}
			if !yield(m, nil) {
				return
			}
		}
		if last != nil {
			yield(Message{}, last)
		}
	}
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return &recorder{rand: rand.New(rand.NewPCG(seed, 0)), fail: map[string]error{}}
}

// Every event is told once and reported in its order; those of one aggregate are told in their order.
func TestSendKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const n = 5000
	b := newRecorder(t)
	next := 0
	err := Send(t.Context(), b, numbered(n, nil), func(r Result) error {
		if r.Event.EventID != strconv.Itoa(next) || r.Outcome != Accepted || r.Err != nil {
			return fmt.Errorf("%d: %+v", next, r)
		}
		next++
		return nil
	})
	check.Require(t, err == nil && next == n && len(b.events) == n, "%v; %d reported, %d published", err, next, len(b.events))
	last := map[string]int{}
	for _, e := range b.events {
		i, err := strconv.Atoi(e.EventID)
		before, ok := last[e.AggregateID]
		check.Require(t, err == nil && (!ok || before < i), "of aggregate %s, %d came behind %d", e.AggregateID, i, before)
		last[e.AggregateID] = i
	}
}

// The first event that cannot be published ends the command, and those that were published are reported.
func TestSendEndsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	b := newRecorder(t)
	b.fail["100"] = gone
	told, failed := map[string]bool{}, 0
	err := Send(t.Context(), b, numbered(1_000_000, nil), func(r Result) error {
		if r.Err != nil {
			failed++
		} else {
			told[r.Event.EventID] = true
		}
		return nil
	})
	check.That(t, errors.Is(err, gone) && failed == 1 && err.Error() == "f:101: gone", "%v, %d failed", err, failed)
	check.That(t, len(b.events) <= 10_000, "%d were published behind the one that failed", len(b.events))
	for _, e := range b.events {
		check.That(t, told[e.EventID], "%s was published, and is not reported", e.EventID)
	}
}

// A mistake in the input is the end, and the events before it are published.
func TestSendEndsWithTheInput(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	b := newRecorder(t)
	reported := 0
	err := Send(t.Context(), b, numbered(50, wrong), func(Result) error { reported++; return nil })
	check.That(t, errors.Is(err, wrong) && reported == 50 && len(b.events) == 50,
		"%v, %d reported, %d published", err, reported, len(b.events))
}

// Sending ends when the reader of its reports has gone.
func TestSendEndsWithItsReader(t *testing.T) {
	t.Parallel()
	closed := errors.New("closed pipe")
	b := newRecorder(t)
	check.ErrorIs(t, Send(t.Context(), b, numbered(1_000_000, nil), func(Result) error { return closed }), closed)
	check.That(t, len(b.events) <= 10_000, "%d were published", len(b.events))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Send(ctx, b, numbered(1_000_000, nil), func(Result) error { return nil })
	check.That(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhyAQuestionHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, text, body string
		is               error
		want             string
	}{
		{"404", "no \x1b[31m", "", api.ErrNotFound, "not found: no \ufffd[31m"},
		{"422", "no", "", api.ErrInvalid, "invalid: the notifier refuses: no"},
		{"409", "no", `{"code":"EVENT_MISMATCH"}`, ErrMismatch, ErrMismatch.Error()},
		{"503", "no", `{"code":"STORE_UNAVAILABLE"}`, api.ErrUnavailable, "unavailable: the notifier says: no"},
		{"507", "no", `{"code":"STORE_FULL"}`, api.ErrUnavailable, "unavailable: the notifier says: no"},
		{"409", "too many users", `{"code":"EVENT_NOT_EXPANDED"}`, nil, "the notifier refuses: too many users (409)"},
		{
			"400", "x", `{"errors":[{"path":"?state","problem":"must be sent"},{"path":"/a/b","problem":"is required"}]}`, api.ErrInvalid,
			"invalid: the notifier refuses: state must be sent; a/b is required",
		},
		{"500", "see the service's log\x1b", "no JSON", nil, "the notifier refuses: see the service's log\ufffd (500)"},
	} {
		answer := &nats.Msg{Header: nats.Header{"Nats-Service-Error": {c.text}}, Data: []byte(c.body)}
		err := (&Client{Service: "notifier"}).refused(c.code, answer)
		check.Equal(t, err.Error(), c.want)
		check.That(t, c.is == nil || errors.Is(err, c.is), "%v is not %v", err, c.is)
	}
}
