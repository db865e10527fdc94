package pull

import (
	"testing"

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
