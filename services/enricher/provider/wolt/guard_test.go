package wolt_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

func TestBreakerOpensTriesAndCloses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		search := func() error { return check.Err(client.Search(t.Context(), pizzaHouse)) }
		check.OK(t, search())
		server.FailAlways(wolttest.Status(http.StatusInternalServerError))
		for range 5 {
			wantFailure(t, search(), provider.KindUnavailable)
		}
		calls := len(server.Calls())
		// Open: no call is made, and the error says for how long.
		elapse(4 * time.Second)
		err := search()
		failure := wantFailure(t, err, provider.KindUnavailable)
		check.That(t, errors.Is(err, wolt.ErrCircuitOpen) && failure.RetryAfter == 26*time.Second && client.Held(),
			"error = %v, want an open breaker for 26s", err)
		// Half open: one call, which fails, and it is open again.
		elapse(27 * time.Second)
		wantNotOpen(t, search())
		check.Is(t, search(), wolt.ErrCircuitOpen)
		// Half open: one call, which succeeds, and it is closed.
		server.Recover()
		elapse(31 * time.Second)
		for range 3 {
			check.Is(t, search(), nil)
		}
		check.Same(t, "calls since the breaker opened", len(server.Calls())-calls, 4)
	}, func(c *wolt.Config) { c.MaxCalls = 1 })
}

func TestBreakerCountsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, fault := range []wolttest.Fault{
		wolttest.NoContent(), wolttest.Empty(), wolttest.HTML(), wolttest.Hang(), wolttest.Status(430),
	} {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.Fail(wolttest.Fault{})
				server.FailAlways(fault)
				for range 5 {
					_, err := client.Search(t.Context(), pizzaHouse)
					wantNotOpen(t, err)
				}
				check.Is(t, check.Err(client.Search(t.Context(), pizzaHouse)), wolt.ErrCircuitOpen)
			})
		})
	}
}

func TestBreakerDoesNotCountCallersWhoGiveUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.FailAlways(wolttest.Hang())
		for range 8 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.Search(ctx, pizzaHouse)
			cancel()
			wantNotOpen(t, err)
		}
	})
}

func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault wolttest.Fault
		want  time.Duration
	}{
		"seconds":              {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "12"), 12 * time.Second},
		"date":                 {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "Sat, 01 Jan 2000 00:00:40 GMT"), 40 * time.Second},
		"date that is over":    {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "Fri, 31 Dec 1999 00:00:00 GMT"), time.Second},
		"zero":                 {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "0"), time.Second},
		"missing":              {wolttest.Status(http.StatusTooManyRequests), 30 * time.Second},
		"unreadable":           {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "soon"), 30 * time.Second},
		"negative":             {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "-5"), 30 * time.Second},
		"a year":               {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "31536000"), 5 * time.Minute},
		"beyond all integers":  {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "99999999999999999999"), 5 * time.Minute},
		"beyond all durations": {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "9223372036854775807"), 5 * time.Minute},
		"date in a century":    {wolttest.StatusRetryAfter(http.StatusTooManyRequests, "Fri, 01 Jan 2100 00:00:00 GMT"), 5 * time.Minute},
		"of a 503":             {wolttest.StatusRetryAfter(http.StatusServiceUnavailable, "9"), 9 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.Fail(wolttest.Fault{}, test.fault)
				_, err := client.Search(t.Context(), pizzaHouse)
				failure, ok := errors.AsType[*provider.Error](err)
				check.Require(t, ok && failure.RetryAfter == test.want, "error = %v, want a pause of %s", err, test.want)
				elapse(test.want - time.Nanosecond)
				_, err = client.Search(t.Context(), pizzaHouse)
				wantFailure(t, err, provider.KindRateLimited)
				check.Same(t, "calls", len(server.Calls()), 2)
				elapse(time.Nanosecond)
				check.Is(t, check.Err(client.Search(t.Context(), pizzaHouse)), nil)
			})
		})
	}
}

// paced returns turns at a rate, in a second.
func paced(perSecond rate.Limit) func(context.Context) error {
	return rate.NewLimiter(perSecond, 1).Wait
}

func TestEachCallTakesATurn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		began := time.Now()
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() {
				check.Is(t, check.Err(client.Search(t.Context(), pizzaHouse)), nil)
			})
		}
		group.Wait()
		// Ten calls, one of them for the cities: one at once, nine half a second apart.
		check.Same(t, "took of fake time", time.Since(began), 4500*time.Millisecond)
		check.Same(t, "calls", len(server.Calls()), 10)
	}, func(c *wolt.Config) { c.Turn, c.MaxCalls = paced(2), 1 })
}

// TestTurnThatDoesNotComeIsNoCall: a search ends with its caller while it waits for its turn, and says so when there is
// none.
func TestTurnThatDoesNotComeIsNoCall(t *testing.T) {
	t.Parallel()
	errNone := errors.New("no turn")
	for name, test := range map[string]struct {
		turn func(context.Context) error
		want provider.Kind
	}{
		"caller ends": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, provider.KindTimeout},
		"no turn":     {func(context.Context) error { return errNone }, provider.KindRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				_, err := client.Search(t.Context(), pizzaHouse)
				if failure := wantFailure(t, err, test.want); test.want == provider.KindRateLimited && (failure.RetryAfter <= 0 || !errors.Is(err, errNone)) {
					t.Errorf("error = %v, want why, and when to come back", err)
				}
				check.Same(t, "calls were made", len(server.Calls()), 0)
			}, func(c *wolt.Config) { c.Turn = test.turn })
		})
	}
}

// TestQueueStopsWhenTheFarSideRefuses has calls wait for their turn while the first
// of them is told to leave the server alone.
func TestQueueStopsWhenTheFarSideRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.Fail(wolttest.Fault{}, wolttest.Fault{}, wolttest.StatusRetryAfter(http.StatusTooManyRequests, "60"))
		check.OK(t, check.Err(client.Search(t.Context(), pizzaHouse)))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, err := client.Search(t.Context(), pizzaHouse)
				wantFailure(t, err, provider.KindRateLimited)
			})
		}
		group.Wait()
		check.Same(t, "calls", len(server.Calls()), 3)
	}, func(c *wolt.Config) { c.Turn = paced(1) })
}

// TestQueueStopsWhenTheBreakerOpens has calls wait for their turn while the first of
// them fail.
func TestQueueStopsWhenTheBreakerOpens(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		check.OK(t, check.Err(client.Search(t.Context(), pizzaHouse)))
		server.FailAlways(wolttest.Status(http.StatusInternalServerError))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, err := client.Search(t.Context(), pizzaHouse)
				wantFailure(t, err, provider.KindUnavailable)
			})
		}
		group.Wait()
		check.Same(t, "calls", len(server.Calls()), 7)
	}, func(c *wolt.Config) { c.Turn = paced(1) })
}

func wantNotOpen(t *testing.T, err error) {
	t.Helper()
	check.That(t, err != nil && !errors.Is(err, wolt.ErrCircuitOpen), "error = %v, want a call that failed", err)
}

func TestLimitsLetEverySearchEndInTime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config wolt.Config
		want   provider.Limits
	}{
		"default":             {wolt.Config{}, provider.Limits{Burst: 2, Gap: time.Second / 2, Searches: 5}},
		"twice the rate":      {wolt.Config{Rate: 4}, provider.Limits{Burst: 2, Gap: time.Second / 4, Searches: 10}},
		"half the time":       {wolt.Config{Timeout: 10 * time.Second}, provider.Limits{Burst: 2, Gap: time.Second / 2, Searches: 2}},
		"one call each":       {wolt.Config{Burst: 7, MaxCalls: 1}, provider.Limits{Burst: 7, Gap: time.Second / 2, Searches: 20}},
		"hardly any rate":     {wolt.Config{Rate: 1e-300}, provider.Limits{Burst: 2, Gap: 24 * time.Hour, Searches: 1}},
		"hardly a limit":      {wolt.Config{Rate: 1e300}, provider.Limits{Burst: 2, Gap: time.Microsecond, Searches: 1 << 16}},
		"no limit":            {wolt.Config{Rate: math.Inf(1)}, provider.Limits{Burst: 2, Gap: time.Microsecond, Searches: 1 << 16}},
		"all the calls there": {wolt.Config{MaxCalls: math.MaxInt}, provider.Limits{Burst: 2, Gap: time.Second / 2, Searches: 1}},
	}
	for name, test := range tests {
		test.config.BaseURL = "http://127.0.0.1"
		client := check.Must(wolt.New(test.config))(t)
		check.Same(t, name, client.Limits(), test.want)
	}
}
