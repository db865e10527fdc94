package hold_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, js jetstream.JetStream) *hold.Cancelled {
	t.Helper()
	return check.Must(hold.OpenCancelled(t.Context(), js.Conn(), recordtest.Client(t, js)))(t)
}

func covers(t *testing.T, s *hold.Cancelled, event, user string, sure bool) bool {
	t.Helper()
	covered := check.Must(s.Covers(t.Context(), &contracts.Notification{EventID: event, RecipientType: "CUSTOMER", UserID: user}, sure))(t)
	return covered
}

// A cancellation is of one event, or of one user of it, whatever their ids are.
func TestWhatIsCancelled(t *testing.T) {
	t.Parallel()
	js, _ := recordtest.Open(t, natstest.Server(t))
	s, later := open(t, js), open(t, js)
	for _, c := range []struct{ event, user string }{{"a", ""}, {"b", "u"}, {"b", "u"}, {"/cancelled", ""}, {"c.d", "*"}} {
		kind := contracts.RecipientType("")
		if c.user != "" {
			kind = "CUSTOMER"
		}
		check.OK(t, check.Err(s.Cancel(t.Context(), c.event, kind, c.user)))
	}
	again, err := s.Cancel(t.Context(), "a", "", "")
	check.That(t, err == nil && again, "%t: %v", again, err)
	for n, s := range []*hold.Cancelled{s, later, open(t, js)} { // the second has not heard of any yet
		for _, want := range []struct {
			event, user string
			covered     bool
		}{
			{"a", "u", true},
			{"a", "v", true},
			{"b", "u", true},
			{"b", "v", false},
			{"/cancelled", "u", true},
			{"cancelled", "u", false},
			{"c.d", "*", true},
			{"c.d", "v", false},
			{"one", "u", false},
			{"all", "u", false},
		} {
			marked := check.Must(s.For(t.Context(), "CUSTOMER", want.user))(t)
			got := marked(hold.MarkOf(want.event))
			check.That(t, got == want.covered, "set %d: the mark of event %s to %s: cancelled is %t", n, want.event, want.user, got)
			got = covers(t, s, want.event, want.user, true)
			check.That(t, got == want.covered, "set %d: event %s to %s: cancelled is %t", n, want.event, want.user, got)
			check.That(t, want.user != "*" || !covers(t, s, want.event, "u", true), "set %d: event %s is cancelled for all", n, want.event)
		}
	}
}

// A process gets a cancellation at once; one that was missed is asked for within two seconds, and a process that could
// not ask does not answer from memory.
func TestACancellationIsHeardOf(t *testing.T) {
	for name, test := range map[string]struct {
		deaf bool // the server repeats nothing
		run  bool
		wait time.Duration
		want bool
	}{
		"repeated":            {false, true, 0, true},
		"asked for":           {true, true, 2 * time.Second, true},
		"too soon":            {true, true, 0, false},
		"nobody listens":      {true, false, hold.Trust, false},
		"nobody listens long": {true, false, hold.Trust + 1, true},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			js, _ := recordtest.Open(t, srv)
			if test.deaf {
				stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t)
				config := stream.CachedInfo().Config
				config.RePublish = nil
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
			}
			s, other := open(t, js), open(t, js)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			if test.run {
				go func() { done <- s.Run(ctx) }()
			} else {
				done <- nil
			}
			natstest.Pass(10 * time.Millisecond)
			if !test.run {
				check.OK(t, s.Sync(t.Context()))
			}
			check.OK(t, check.Err(other.Cancel(t.Context(), "a", "", "")))
			natstest.Pass(test.wait)
			if test.wait == 0 {
				natstest.Pass(time.Millisecond)
			}
			check.Equal(t, covers(t, s, "a", "u", false), test.want, "cancelled")
			stop()
			check.ErrorIs(t, <-done, nil)
		})
	}
}

// A cancellation that the bucket does not list any more is forgotten an hour later.
func TestACancellationThatIsGoneIsForgotten(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		js, _ := recordtest.Open(t, srv)
		s := open(t, js)
		check.OK(t, check.Err(s.Cancel(t.Context(), "a", "", "")))
		check.OK(t, check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t).Purge(t.Context()))
		for _, want := range []bool{true, false} {
			check.OK(t, s.Sync(t.Context()))
			check.Equal(t, covers(t, s, "a", "u", false), want, "cancelled")
			time.Sleep(time.Hour + time.Second) //nolint:forbidigo // fake
		}
	})
}

// A caller that waits for the unanswered request of another caller waits no longer than its own context lasts.
func TestAQuestionHoldsUpNobodyForLonger(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		proxy := natstest.NewProxy(t, srv)
		js, _ := recordtest.Open(t, srv, proxy.Through())
		s := open(t, js)
		proxy.Partition()
		const first, second = 3 * time.Second, time.Second
		var asking sync.WaitGroup
		for _, patience := range []time.Duration{first, second, second} {
			asking.Go(func() {
				begun := time.Now()
				ctx, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				if err := s.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != patience {
					t.Errorf("%v after %s, want the end of a context after %s", err, time.Since(begun), patience)
				}
			})
			natstest.Pass(time.Millisecond) // until it asks
		}
		asking.Wait()
	})
}
