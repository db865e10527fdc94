package flight_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// What Do does with values and answers that are kept, DoMany does for each key.
func TestDoManyOfKeptValues(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		opts := flight.DoOptions{TTL: 10 * time.Second, Stale: time.Hour, NegativeTTL: time.Minute}
		nothing := func(_ context.Context, missing []string) (map[string][]byte, error) {
			return valuesBy("first", missing), flight.KeysError{"b": flight.ErrNotFound}
		}
		for range 2 { // b is known to be nothing, the second time
			results, err := f.DoMany(t.Context(), []string{"a", "b"}, nothing, opts)
			errs, _ := errors.AsType[flight.KeysError](err)
			if len(errs) != 1 || !errors.Is(errs["b"], flight.ErrNotFound) || string(results[0].Value) != "a by first" {
				t.Errorf("got %s", summary(results, err))
			}
			nothing = nil
		}

		pass(20 * time.Second) // a is stale
		var a asked
		results, err := f.DoMany(t.Context(), []string{"a", "c"}, a.by("second"), opts)
		wantSummary(t, results, err, "stale a by first", "computed c by second")
		pass(time.Second)
		a.sort()
		a.want(t, []string{"a"}, []string{"c"})
		results, err = f.DoMany(t.Context(), []string{"a", "c"}, nil, opts)
		wantSummary(t, results, err, "cached a by second", "cached c by second")
	})
}

// A caller that does not wait gets the cached values, and computes the keys that no process computes.
func TestDoManyThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		begin(t, g, "theirs", flight.BeginOptions{})
		complete(t, begin(t, g, "done", flight.BeginOptions{}), "done by g")
		end := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := f.Do(t.Context(), "ours", func(context.Context) ([]byte, error) { <-end; return nil, nil }, flight.DoOptions{})
			check.Is(t, err, nil)
		})
		pass(time.Second)
		var a asked
		results, err := f.DoMany(t.Context(), []string{"theirs", "ours", "done", "free"}, a.by("f"), flight.DoOptions{NoWait: true})
		close(end)
		all.Wait()
		errs, _ := errors.AsType[flight.KeysError](err)
		if len(errs) != 2 || !errors.Is(errs["theirs"], flight.ErrTaken) || !errors.Is(errs["ours"], flight.ErrTaken) ||
			string(results[2].Value) != "done by g" || string(results[3].Value) != "free by f" {
			t.Errorf("got %s", summary(results, err))
		}
		a.want(t, []string{"free"})
	})
}
