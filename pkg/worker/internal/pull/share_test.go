package pull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSlotWaitsForTheSourceWhoseTurnItIs has slots become free while the source with the next turn has not answered.
func TestSlotWaitsForTheSourceWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	running := func() bool { return false }
	free := 17
	p := New(Config{Free: func() int { return free }, Sources: []Source{{Paused: running, Weight: 16}, {Paused: running, Weight: 1}}})
	high, low := p.sources[0], p.sources[1]
	want := func(when string, asked request, highs, lows int64) {
		t.Helper()
		p.share()
		check.That(t, low.asked == asked && high.batch == highs && low.batch == lows,
			"%s: asked for %d and %d, the second with kind %d; want %d and %d, kind %d", when, high.batch, low.batch, low.asked, highs, lows, asked)
	}
	high.more.Store(true)
	low.more.Store(true)
	want("all slots free", taking, 16, 1)
	high.left.Store(16) // without a connection nothing was sent
	free = 36
	want("the first has not answered", none, 16, 1)
	high.left.Store(0)
	free = 20
	want("the first has answered", taking, 18, 2)
	high.left.Store(18)
	free = 38
	high.lost = true
	want("the first does not answer", taking, 18, 20)
	high.lost = false
	high.left.Store(0)
	free = 34
	want("the first is back, and has no claim on the slots that it missed", taking, 32, 2)
	p.returned(high)
	high.asked = taking
	high.left.Store(32)
	free = 37
	want("the first was empty when it was asked again", taking, 32, 5)
}

// TestSinceIsThatOfTheRequest has two requests go without an end while messages are pending, and then one that the server ends.
func TestSinceIsThatOfTheRequest(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	s := &source{inbox: "inbox.", sent: at(1)}
	want := func(when string, seconds int) {
		t.Helper()
		got := s.since()
		check.That(t, got.Equal(at(seconds)), "%s: since %d, want %d", when, got.Unix(), seconds)
	}
	want("the first request", 1)
	s.leave(2)
	s.number, s.sent = 2, at(2)
	want("the first of two that were pending", 1)
	s.leave(2) // one of them is still there
	s.number, s.sent = 3, at(3)
	want("a message that is pending since the first request", 1)
	s.ends(&nats.Msg{Subject: "inbox.2"})
	want("after a notice about an earlier request", 1)
	want("behind the pending messages", 3)
	s.leave(5)
	s.number, s.sent = 4, at(4)
	s.ends(&nats.Msg{Subject: "inbox.4"})
	want("after a notice about the latest request", 4)
	s.leave(-1) // the subscription has ended
	s.sent = at(5)
	want("when nothing is pending", 5)
}
