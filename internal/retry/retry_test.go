package retry_test

import (
	"context"
	"fmt"
	"net/http"
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

func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC() // midnight of 2000-01-01
		for value, want := range map[string]time.Duration{
			"": 0, "0": 0, "30": 30 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "1.5": 0, "soon": 0,
			"999999999": time.Hour, "99999999999999999999": time.Hour,
			now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
			"Fri, 20 Nov 2099 12:01:00 GMT": time.Hour,
		} {
			check.Equal(t, retry.After(http.Header{"Retry-After": {value}}, 0, time.Hour), want, value)
		}
		at := "Fri, 20 Nov 2026 12:01:00 GMT"
		for date, want := range map[string]time.Duration{ // the server's clock
			"Fri, 20 Nov 2026 12:00:00 GMT": time.Minute, "Fri, 20 Nov 2026 12:02:00 GMT": 0, "Fri, 20 Nov 2020 12:00:00 GMT": time.Hour,
			"now": time.Hour, "": time.Hour,
		} {
			check.Equal(t, retry.After(http.Header{"Retry-After": {at}, "Date": {date}}, 0, time.Hour), want, "at "+date)
		}
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
