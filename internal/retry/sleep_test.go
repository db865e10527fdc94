package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		check.That(t, retry.Sleep(ctx, time.Second) && time.Since(start) == time.Second, "took %s", time.Since(start))
		check.That(t, retry.Sleep(ctx, -time.Second), "a wait that is over ends the context")
		cancel()
		check.That(t, !retry.Sleep(ctx, time.Second) && !retry.Sleep(ctx, 0) && time.Since(start) == time.Second,
			"goes on after a context that has ended, %s later", time.Since(start))
	})
}

func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start, calls := time.Now(), 0
		retry.Every(ctx, time.Second, func(context.Context) { calls++ })
		check.That(t, calls == 3 && time.Since(start) == 3500*time.Millisecond, "%d calls in %s", calls, time.Since(start))
	})
}
