package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		check.That(t, pause.For(ctx, time.Second) && time.Since(start) == time.Second, "took %s", time.Since(start))
		check.That(t, pause.For(ctx, -time.Second), "a wait that is over ends the context")
		cancel()
		check.That(t, !pause.For(ctx, time.Second) && !pause.For(ctx, 0) && time.Since(start) == time.Second,
			"goes on after a context that has ended, %s later", time.Since(start))
	})
}

func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start, calls := time.Now(), 0
		pause.Every(ctx, time.Second, func(context.Context) { calls++ })
		check.That(t, calls == 3 && time.Since(start) == 3500*time.Millisecond, "%d calls in %s", calls, time.Since(start))
	})
}
