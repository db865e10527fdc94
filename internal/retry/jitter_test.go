package retry_test

import (
	"context"
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
