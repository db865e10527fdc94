package imports

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var errService = errors.New("far")

func always(error) verdict { return verdict{Again: true} }

// TestPausesAreTheDocumented checks delay = base × 2^attempt ± 20 %, and never under 100 ms.
func TestPausesAreTheDocumented(t *testing.T) {
	t.Parallel()
	for attempt, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		for range 100 {
			got := RetryPolicy{Base: 2 * time.Second}.Pause(attempt)
			check.Require(t, got >= want*8/10 && got <= want*12/10, "attempt %d: %s, want %s ± 20 %%", attempt, got, want)
		}
	}
	check.Same(t, "result", (RetryPolicy{Base: time.Millisecond}).Pause(0), 100*time.Millisecond)
}

func TestRepetitionsAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		judge        func(error) verdict
		succeeds     int
		calls, again int
		fails        bool
	}{
		"succeeds at once":      {always, 1, 1, 0, false},
		"succeeds at last":      {always, 4, 4, 3, false},
		"used up":               {always, 9, 4, 3, true},
		"not worth a try again": {func(error) verdict { return verdict{} }, 9, 1, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, again := 0, 0
			err := RetryPolicy{Base: time.Second, Retries: 3}.Do(t.Context(), func(context.Context) error {
				calls++
				if calls == c.succeeds {
					return nil
				}
				return errService
			}, c.judge, func(int, time.Duration, error) { again++ })
			check.That(t, calls == c.calls && again == c.again && errors.Is(err, errService) == c.fails,
				"%s: %d calls, %d repetitions, %v", name, calls, again, err)
		})
	}
}

// A pause that is too long for an attempt ends the attempt; it is not made shorter.
func TestAFarSideCanAskForTimeAndNotForEver(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{30 * time.Second: 30 * time.Second, 5 * time.Minute: 0, time.Hour: 0} {
		var paused time.Duration
		synctest.Test(t, func(t *testing.T) {
			err := RetryPolicy{Base: time.Second, Retries: 1}.Do(t.Context(), func(context.Context) error { return errService },
				func(error) verdict { return verdict{Again: true, After: asked} },
				func(_ int, pause time.Duration, _ error) { paused = pause })
			check.Is(t, err, errService)
		})
		check.Same(t, fmt.Sprintf("for %s", asked), paused, want)
	}
}

func TestPolicyText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]RetryPolicy{
		"3,500ms": {Base: 500 * time.Millisecond, Retries: 3}, "0, 1s": {Base: time.Second}, "20,1m": {Base: time.Minute, Retries: 20},
		"": {}, "3": {}, "x,1s": {}, "3,x": {}, "-1,1s": {}, "21,1s": {}, "3,2m": {}, "3,1ms": {},
	} {
		var got RetryPolicy
		err := got.UnmarshalText([]byte(text))
		check.That(t, (err == nil) == (want.Base > 0) && (err != nil || got == want), "%q is %+v, %v", text, got, err)
	}
}

func TestTheEndOfTheCallerEndsThePause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	err := RetryPolicy{Base: time.Hour, Retries: 3}.Do(ctx, func(context.Context) error { return errService }, always,
		func(int, time.Duration, error) { cancel(errService) })
	check.Is(t, err, errService)
}
