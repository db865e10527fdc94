package retry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const d = time.Second
		took := map[time.Duration]bool{}
		for range 100 {
			start := time.Now()
			check.Require(t, retry.Jitter(t.Context(), d), "says that the context has ended")
			took[time.Since(start)] = true
			n := time.Since(start)
			check.That(t, n >= d/2 && n < d/2+d, "took %s", n)
		}
		check.That(t, len(took) >= 50, "%d different pauses of 100", len(took))
		ctx, cancel := context.WithTimeout(t.Context(), d/4)
		defer cancel()
		start := time.Now()
		check.That(t, !retry.Jitter(ctx, d) && time.Since(start) == d/4,
			"goes on %s after a context that ended after %s", time.Since(start), d/4)
	})
}

func TestWaitDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(1<<63 - 1)
	for n, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 2: 12, 3: 20, 4: 20, 1 << 62: 20} {
		check.Equal(t, retry.Wait(n, 3, 20), want, fmt.Sprintf("after failure %d", n))
	}
	check.Equal(t, retry.Wait(100, time.Second, longest), longest, "without an overflow")
	check.Equal(t, retry.Wait(0, 7, 5), 5, "a bound below the first")
}

func TestSpreadStaysWithinItsShare(t *testing.T) {
	t.Parallel()
	const d = 10 * time.Second
	least, most := d, d
	for range 1000 {
		got := retry.Spread(d, 0.2)
		least, most = min(least, got), max(most, got)
	}
	check.That(t, least >= 8*time.Second && most <= 12*time.Second && most-least > 2*time.Second, "from %s to %s", least, most)
	check.Equal(t, retry.Spread(0, 0.5), 0, "of no time")
}
