package kvlock_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Whose connection is lost after a write was applied and before that was acknowledged does not wait out the try: it finds
// out as soon as there is a connection again.
func TestLostConnectionIsNoticedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		l := b.Locker(t, kvlock.LockerConfig{}, p.Through(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		release(t, acquire(t, l, "l"))
		lost, reply := make(chan struct{}), ""
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			switch {
			case isWrite(f, "l") && reply == "":
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
		lease := acquire(t, l, "l")
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		release(t, lease)
	})
}

// What is closed leaves no subscription behind on its connection.
func TestCloseLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	nc := b.JS.Conn()
	before := nc.NumSubscriptions()
	for range 3 {
		l, err := kvlock.NewLocker(t.Context(), b.JS, kvlock.LockerConfig{Bucket: bucket})
		check.OK(t, err)
		f, err := flight.New(t.Context(), b.JS, flight.Config{Bucket: bucket})
		check.OK(t, err)
		release(t, acquire(t, l, "l"))
		l.Close()
		f.Close()
	}
	check.Same(t, "nc.NumSubscriptions()", nc.NumSubscriptions(), before)
}
