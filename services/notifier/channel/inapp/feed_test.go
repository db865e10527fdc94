package inapp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told wants the next items of a feed.
func told(t *testing.T, f *inapp.Feed, want ...string) {
	t.Helper()
	for _, id := range want {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		item, err := f.Next(ctx)
		cancel()
		if err != nil || item.EventID != id {
			t.Fatalf("told of %q, %v; want %s", item.EventID, err, id)
		}
	}
}

// quietly wants that there is nothing to tell.
func quietly(t *testing.T, f *inapp.Feed, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if item, err := f.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("told of %+v, %v; want nothing", item, err)
	}
}

// through is an inbox whose connection goes through a proxy.
func through(t *testing.T, p *natstest.Proxy, srv *natsrun.Server) *inapp.Inbox {
	t.Helper()
	_, js := natstest.Connect(t, srv, p.Through(), nats.ReconnectWait(time.Second))
	b, err := inapp.Open(t.Context(), js, recordtest.Client(t, js), inapp.Config{})
	check.OK(t, err)
	return b
}

// A feed that was cut off delivers the changes of that time once when it is connected again, however often its reader stops
// waiting meanwhile. It also delivers the changes after a restart of the server.
func TestFeedThatWasCutOffMissesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv, inapp.Config{})
		p := natstest.NewProxy(t, srv)
		f, err := through(t, p, srv).Follow(t.Context(), "CUSTOMER", "u", 0)
		check.OK(t, err)
		defer f.Close()
		send(t, b, message("u", "before", time.Now()))
		told(t, f, "before")
		p.Cut()
		send(t, b, message("u", "meanwhile", time.Now()))
		send(t, b, message("other", "not-mine", time.Now()))
		p.Slow(time.Second)
		p.Heal()
		for range 300 { // heartbeats, in the middle of which it is connected again
			quietly(t, f, 100*time.Millisecond)
		}
		p.Slow(0)
		told(t, f, "meanwhile")
		quietly(t, f, time.Minute)
		check.OK(t, srv.Restart(t.Context()))
		elapse(10 * time.Second)
		send(t, b, message("u", "after", time.Now()))
		told(t, f, "after")
		quietly(t, f, time.Minute)
	})
}

// A feed that nobody reads for long drops what it cannot hold, and reads it again.
func TestFeedThatIsReadSlowlyMissesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv, inapp.Config{})
		f, err := through(t, natstest.NewProxy(t, srv), srv).Follow(t.Context(), "CUSTOMER", "u", 0)
		check.OK(t, err)
		defer f.Close()
		var want []string
		for i := range 600 { // more than twice what it holds
			want = append(want, fmt.Sprintf("e%03d", i))
			send(t, b, message("u", want[i], time.Now()))
		}
		elapse(time.Second) // all have come, or were dropped
		told(t, f, want...)
		quietly(t, f, time.Minute)
	})
}
