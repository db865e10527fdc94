package kvlock_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { natstest.Main(m, 2) }

// Whose connection is lost after a write was applied and before that was acknowledged does not wait out the try: it finds
// out as soon as there is a connection again.
func TestLostConnectionIsNoticedAtOnce(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		l := b.Locker(t, kvlock.LockerConfig{}, p.Through(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		testbed.Release(t, testbed.Acquire(t, l, "l"))
		lost, reply := make(chan struct{}), ""
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			switch {
			case testbed.IsWrite(f, "l") && reply == "":
				reply = f.Reply
			case !f.FromClient && f.Subject == reply:
				reply = "lost"
				close(lost)
				return natstest.Lose
			}
			return natstest.Relay
		})
		go func() {
			<-lost
			p.Cut()
			p.Heal()
		}()
		start := time.Now()
		lease := testbed.Acquire(t, l, "l")
		testbed.Took(t, "acquired", start, 0, 500*time.Millisecond)
		testbed.Release(t, lease)
	})
}

// Close leaves no subscription behind on the connection.
func TestCloseLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	nc := b.JS.Conn()
	before := nc.NumSubscriptions()
	for range 3 {
		l := check.Must(kvlock.NewLocker(t.Context(), b.JS, kvlock.LockerConfig{Bucket: testbed.Bucket}))(t)
		f := check.Must(flight.New(t.Context(), b.JS, flight.Config{Bucket: testbed.Bucket}))(t)
		testbed.Release(t, testbed.Acquire(t, l, "l"))
		l.Close()
		f.Close()
	}
	check.Equal(t, nc.NumSubscriptions(), before, "nc.NumSubscriptions()")
}
