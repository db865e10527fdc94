package flight_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// The process that computes a value anew dies, or is cut off. The value stays, and another process computes.
func TestRefresherDies(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  flight.Config
		want time.Duration
	}{
		"found out":  {flight.Config{}, 50 * time.Millisecond},
		"by its TTL": {flight.Config{ProbeInterval: -1}, 12 * time.Second},
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			cfg := tt.cfg
			cfg.ClaimTTL = 10 * time.Second
			f, die := b.killable(t, cfg)
			g := b.Flight(t, tt.cfg)
			var runs atomic.Int64
			opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
			wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Computed)
			pass(2 * time.Minute)
			wantDo(t, f, numbered(&runs, time.Minute, nil), opts, "1", flight.Stale)
			pass(time.Second)
			die()
			start := time.Now()
			patient := opts
			patient.StaleWait = time.Minute
			wantDo(t, g, func(context.Context) ([]byte, error) { return []byte("3"), nil }, patient, "3", flight.Computed)
			if took := time.Since(start); took > tt.want {
				t.Errorf("taken over after %s, want %s", took, tt.want)
			}
		})
	}
}

// The process that computes a value anew dies, and the next call comes long after its claim. The value is still there.
func TestValueSurvivesItsRefresher(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, die := b.killable(t, flight.Config{ClaimTTL: 10 * time.Second})
		g := b.Flight(t, flight.Config{})
		var runs atomic.Int64
		opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
		wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Computed)
		pass(2 * time.Minute)
		wantDo(t, f, numbered(&runs, time.Minute, nil), opts, "1", flight.Stale)
		pass(time.Second)
		die()
		pass(30 * time.Minute)
		wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Stale)
		pass(time.Second)
		wantDo(t, g, nil, opts, "3", flight.Cached)
		pass(2 * time.Minute)
		if c := begin(t, g, "k", flight.BeginOptions{}); c.Token().Revision == 0 { // a value past its TTL does not keep a claim away
			t.Error("no token")
		}
	})
}

// A waiter for a value that is computed anew gets the earlier one when the process that computes it has died, whether
// the waiter came before or long after that.
func TestWaitForARefresherThatDied(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		const claim = 10 * time.Second
		f, die := b.killable(t, flight.Config{ClaimTTL: claim, Instance: "dies"})
		g := b.Flight(t, flight.Config{Instance: "lives"})
		var runs atomic.Int64
		opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
		wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Computed)
		pass(2 * time.Minute)
		wantDo(t, f, numbered(&runs, time.Minute, nil), opts, "1", flight.Stale)
		pass(time.Second)
		die()
		for _, most := range []time.Duration{claim + 2*time.Second, time.Millisecond} {
			began := time.Now()
			s, err := g.Wait(t.Context(), "k")
			if err != nil || s.State != flight.Done || string(s.Value) != "1" || !s.Stale() || s.Owner != "lives" {
				t.Errorf("got %s with %q of %s, stale %t, %v; want the earlier value", s.State, s.Value, s.Owner, s.Stale(), err)
			}
			if took := time.Since(began); took > most {
				t.Errorf("waited for %s, want at most %s", took, most)
			}
			pass(time.Minute)
		}
	})
}
