package wolt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

// asSet has a client keep to the rate that it has by default.
func asSet(c *wolt.Config) { c.Rate, c.Burst, c.Confident = 2, 2, never }

// patient has a call wait for its answer as long as a search may.
func patient(c *wolt.Config) { c.BreakerFailures, c.CallTimeout = 100, time.Minute }

// branch is a place that takes all four calls.
func branch(n int) match.Place {
	return match.Place{Name: fmt.Sprintf("Pizza %d | Branch %d", n, n), Aliases: []string{"פיצה"}, Location: &telAviv}
}

const (
	crowd         = 32 // searches at the same time
	callsOfSearch = 4
)

// TestManySearchesAtOnce: of many searches at the same moment each ends, none for
// lack of turns, and no call is wasted.
func TestManySearchesAtOnce(t *testing.T) {
	t.Parallel()

	for name, deadline := range map[string]time.Duration{"without a deadline": 0, "of a worker": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()

				began := time.Now()

				var group sync.WaitGroup
				for n := range crowd {
					group.Go(func() {
						if err := insist(t.Context(), client, branch(n), deadline); err != nil {
							t.Error(err)
						}
					})
				}

				group.Wait()

				if got := len(asked(server)); got != crowd*callsOfSearch {
					t.Errorf("%d searches were asked for, want %d", got, crowd*callsOfSearch)
				}

				atRate := crowd * callsOfSearch / 2 * time.Second
				if took := time.Since(began); took > atRate+20*time.Second {
					t.Errorf("took %s, the rate allows %s", took, atRate)
				}
			}, asSet)
		})
	}
}

// insist searches, each time within a deadline, until the client is not busy.
func insist(ctx context.Context, client *wolt.Client, place match.Place, deadline time.Duration) error {
	for {
		try, cancel := ctx, func() {}
		if deadline > 0 {
			try, cancel = context.WithTimeout(ctx, deadline)
		}

		_, err := client.Search(try, place)

		cancel()

		failure, ok := errors.AsType[*provider.Error](err)
		if !ok || failure.Kind != provider.KindBusy || failure.RetryAfter <= 0 {
			return err
		}

		elapse(failure.RetryAfter)
	}
}

// TestBusyIsNotSaidTooSoon: a search waits for its turn while enough time is left
// for itself, and not longer.
func TestBusyIsNotSaidTooSoon(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ deadline, want time.Duration }{
		"time to wait": {30 * time.Second, 10 * time.Second},
		"just enough":  {20 * time.Second, 0},
		"too little":   {5 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				hangAll(t, server, client)

				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()

				began := time.Now()
				_, err := client.Search(ctx, pizzaHouse)
				failure := wantFailure(t, err, provider.KindBusy)

				if took := time.Since(began); took != test.want || failure.RetryAfter != 10*time.Second {
					t.Errorf("busy after %s for %s, want after %s for 10s", took, failure.RetryAfter, test.want)
				}
			}, asSet, patient)
		})
	}
}

// TestWhoWaitsGivesUp: a caller that ends while it waits is told so, and its turn
// goes to the next.
func TestWhoWaitsGivesUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		hangAll(t, server, client)

		ctx, cancel := context.WithCancel(t.Context())
		given, next := make(chan error), make(chan error)

		go func() {
			_, err := client.Search(ctx, pizzaHouse)
			given <- err
		}()
		synctest.Wait()

		go func() {
			_, err := client.Search(t.Context(), pizzaHouse)
			next <- err
		}()
		synctest.Wait()
		cancel()
		wantFailure(t, <-given, provider.KindCanceled)
		server.Recover()

		if err := <-next; err != nil {
			t.Errorf("the next one: %v", err)
		}
	}, asSet, patient)
}

// hangAll has as many searches under way as may be, which nobody answers.
func hangAll(t *testing.T, server *wolttest.Server, client *wolt.Client) {
	t.Helper()

	if _, err := client.Search(t.Context(), pizzaHouse); err != nil { // The cities are there.
		t.Fatal(err)
	}

	server.FailAlways(wolttest.Hang())

	var group sync.WaitGroup
	t.Cleanup(group.Wait)

	for range 5 {
		group.Go(func() {
			_, err := client.Search(t.Context(), pizzaHouse)
			if !errors.Is(err, provider.ErrTimeout) && !errors.Is(err, provider.ErrCanceled) { // Or the test is over.
				t.Errorf("a search that nobody answers: %v", err)
			}
		})
	}

	elapse(5 * time.Second) // Each has made its first call.
}
