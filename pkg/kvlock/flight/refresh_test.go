package flight_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var errOven = errors.New("oven is cold")

// numbered is a function that takes a while and returns how often it was run, or fails.
func numbered(runs *atomic.Int64, takes time.Duration, fails *atomic.Bool) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		n := runs.Add(1)
		pass(takes)
		if fails != nil && fails.Load() {
			return nil, errOven
		}
		return fmt.Append(nil, n), nil
	}
}

// wantDo calls Do for key "k" and compares value and outcome.
func wantDo(t *testing.T, f *flight.Flight, fn func(context.Context) ([]byte, error), opts flight.DoOptions, want string, outcome flight.Outcome) flight.Result {
	t.Helper()
	r, err := f.Do(t.Context(), "k", fn, opts)
	check.That(t, err == nil && string(r.Value) == want && r.Outcome == outcome,
		"got %q, %s, %v; want %q, %s", r.Value, r.Outcome, err, want, outcome)
	return r
}

// A value that is asked for all the time is computed anew before it expires, once in all processes, and no caller
// waits.
func TestRefreshComputesOnceEverywhere(t *testing.T) {
	for name, memory := range map[string]int64{"bucket": 0, "memory": 1 << 20} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			var runs atomic.Int64
			fn := numbered(&runs, 4*time.Second, nil) // so that none ends when it is looked for
			opts := flight.DoOptions{Refresh: 0.5, TTL: 100 * time.Second}
			var flights []*flight.Flight
			for range 3 {
				flights = append(flights, b.Flight(t, flight.Config{Memory: flight.MemoryConfig{MaxBytes: memory}}))
			}
			wantDo(t, flights[0], fn, opts, "1", flight.Computed)
			for second := range 400 {
				pass(time.Second)
				if second%5 != 0 {
					continue
				}
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						start := time.Now()
						r, err := flights[i%3].Do(t.Context(), "k", fn, opts)
						check.That(t, err == nil && r.Outcome == flight.Cached && time.Since(start) <= time.Second && r.Age <= 80*time.Second,
							"after %d s: got %+v, %v after %s", second, r, err, time.Since(start))
					})
				}
				all.Wait()
			}
			n := runs.Load()
			check.That(t, n >= 5 && n <= 9, "computed %d times in 400 s, want once for each 50 to 80", n)
		})
	}
}

// While a value is computed anew its record is pending, and readers have the value.
func TestValueIsThereWhileItIsComputedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		var o observed
		f, g := o.flight(t, b, flight.Config{Instance: "f", ClaimTTL: 3 * time.Second}), b.Flight(t, flight.Config{})
		var runs atomic.Int64
		opts := flight.DoOptions{Refresh: 0.5, TTL: 100 * time.Second}
		first := wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Computed)
		pass(80 * time.Second)
		old := wantDo(t, f, numbered(&runs, 10*time.Second, nil), opts, "1", flight.Cached)
		pass(8 * time.Second) // some renewals
		s := wantEntry(t, g, "k", flight.Pending, "1")
		check.That(t, !s.Stale() && s.Owner == "f" && old.Claim == first.Claim, "got %+v", s)
		r := wantDo(t, g, nil, opts, "1", flight.Cached)
		check.That(t, r.Claim == first.Claim && r.Owner == first.Owner && r.Age >= 88*time.Second && r.Age <= 89*time.Second,
			"got %+v, want the value computed 88s ago", r)
		s, err := f.Wait(t.Context(), "k")
		check.That(t, err == nil && string(s.Value) == "2", "got %+v, %v; want the new value", s, err)
		pass(time.Second)
		var got []flight.EventKind
		for _, e := range o.take() {
			if e.Kind != flight.EventReturned { // before or after the others
				got = append(got, e.Kind)
			}
		}
		check.That(t, slices.Equal(got, []flight.EventKind{flight.EventAcquired, flight.EventRefresh, flight.EventReleased}), "got %s", got)
		r = wantDo(t, g, nil, opts, "2", flight.Cached)
		check.That(t, r.Age <= 2*time.Second, "the new value is %s old", r.Age)
	})
}

// A computation that fails, or is given up, leaves the value with its age, and no process tries again for a while.
func TestFailedRefreshKeepsTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		var o observed
		f, g := o.flight(t, b, flight.Config{}), o.flight(t, b, flight.Config{}) // either may be the one that tries
		var runs atomic.Int64
		var fails atomic.Bool
		fn := numbered(&runs, time.Second, &fails)
		opts := flight.DoOptions{Refresh: 0.5, TTL: 200 * time.Second}
		wantDo(t, f, fn, opts, "1", flight.Computed)
		o.take()
		fails.Store(true)
		pass(160 * time.Second)
		for range 20 { // 20 s, in two of which it is tried: each failure keeps others from it for ten
			for _, x := range []*flight.Flight{f, g} {
				wantDo(t, x, fn, opts, "1", flight.Cached)
			}
			pass(time.Second)
		}
		check.Same(t, "computed, and tried twice in 20 s", runs.Load(), 3)
		s := wantEntry(t, g, "k", flight.Done, "1")
		r := wantDo(t, g, fn, opts, "1", flight.Cached)
		check.That(t, r.Age >= 180*time.Second && r.Age <= 182*time.Second, "%s old after 180 s", r.Age)
		released := 0
		for _, e := range o.take() {
			if e.Kind == flight.EventReleased {
				released++
				check.That(t, e.State == flight.Failed && errors.Is(e.Err, flight.ErrFailed), "got %+v", e)
			}
		}
		check.Same(t, "released", released, 2)
		pass(25 * time.Second) // it is over as if nothing had been tried
		wantErr(t, check.Err(g.Do(t.Context(), "k", fn, opts)), errOven)
		check.That(t, s.TTL <= 45*time.Second, "kept for %s, longer than its TTL", s.TTL)
	})
}

func TestStaleWhenComputingFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		var o observed
		f, g := o.flight(t, b, flight.Config{}), b.Flight(t, flight.Config{})
		var runs atomic.Int64
		var fails atomic.Bool
		fn := numbered(&runs, time.Second, &fails)
		opts := flight.DoOptions{
			FailureTTL: func(error) time.Duration { return 30 * time.Second }, Stale: time.Hour, StaleWait: time.Minute, TTL: 60 * time.Second,
		}
		wantDo(t, f, fn, opts, "1", flight.Computed)
		fails.Store(true)
		pass(2 * time.Minute)
		o.take()
		r := wantDo(t, f, fn, opts, "1", flight.Stale)
		check.That(t, r.Age >= 2*time.Minute, "got %+v", r)
		got := o.wantEvents(t, "stale", flight.EventAcquired, flight.EventRefresh, flight.EventReleased, flight.EventStale, flight.EventReturned)
		check.That(t, got[3].Elapsed >= 2*time.Minute && got[4].Outcome == flight.Stale, "got %+v", got)
		for range 25 { // no process tries again for 30 s, and so no caller waits
			start := time.Now()
			wantDo(t, g, fn, opts, "1", flight.Stale)
			took(t, "waited", start, 0, 0)
			pass(time.Second)
		}
		check.Same(t, "computed, and tried once", runs.Load(), 2)
		ours, theirs := f.Stats(), g.Stats()
		check.That(t, ours.Stale == 1 && ours.Refreshes == 1 && theirs.Stale == 25 && theirs.Refreshes == 0, "got %+v and %+v", ours, theirs)
		pass(10 * time.Second)
		fails.Store(false)
		wantDo(t, g, fn, opts, "3", flight.Computed) // waited for it
		wantDo(t, f, fn, opts, "3", flight.Cached)

		strict := opts
		strict.Stale = 0
		pass(2 * time.Minute)
		fails.Store(true)
		_, err := g.Do(t.Context(), "k", fn, strict) // a caller that takes no stale value gets the failure, and leaves the value
		wantErr(t, err, errOven)
		wantDo(t, f, fn, opts, "3", flight.Stale)
		pass(time.Hour)
		wantErr(t, check.Err(f.Do(t.Context(), "k", fn, opts)), errOven)
	})
}

// A caller gets a stale value at once, or after as long as it likes to wait, and a new one if that is there by then.
func TestStaleWhileItIsComputedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		var runs atomic.Int64
		fn := numbered(&runs, 10*time.Second, nil)
		opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
		wantDo(t, f, fn, opts, "1", flight.Computed)
		pass(2 * time.Minute)
		took := func(what string, want time.Duration, do func()) {
			t.Helper()
			start := time.Now()
			do()
			check.Same(t, what, time.Since(start).Round(10*time.Millisecond), want)
		}
		patient, hasty := opts, opts
		patient.StaleWait, hasty.StaleWait = time.Minute, time.Second
		took("at once", 0, func() { wantDo(t, f, fn, opts, "1", flight.Stale) })
		pass(time.Second) // f computes, and g does not
		took("at once, elsewhere", 0, func() { wantDo(t, g, fn, opts, "1", flight.Stale) })
		took("after a second", time.Second, func() { wantDo(t, f, fn, hasty, "1", flight.Stale) })
		took("after a second, elsewhere", time.Second, func() { wantDo(t, g, fn, hasty, "1", flight.Stale) })
		var all sync.WaitGroup
		all.Go(func() { took("the new one", 7*time.Second, func() { wantDo(t, f, fn, patient, "2", flight.Computed) }) })
		all.Go(func() {
			took("the new one, elsewhere", 7*time.Second, func() { wantDo(t, g, fn, patient, "2", flight.Coalesced) })
		})
		all.Wait()
		check.Same(t, "computed", runs.Load(), 2)
	})
}

// A caller that takes no stale value waits for the new one, and gets its failure, as if there were no value.
func TestCallerThatTakesNoStaleValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		var runs atomic.Int64
		var fails atomic.Bool
		fn := numbered(&runs, 10*time.Second, &fails)
		opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
		wantDo(t, f, fn, opts, "1", flight.Computed)
		pass(2 * time.Minute)
		wantDo(t, f, fn, opts, "1", flight.Stale)
		pass(time.Second)
		wantDo(t, g, fn, flight.DoOptions{}, "2", flight.Coalesced)
		pass(2 * time.Minute)
		fails.Store(true)
		wantDo(t, f, fn, opts, "2", flight.Stale)
		pass(time.Second)
		wantErr(t, check.Err(g.Do(t.Context(), "k", fn, flight.DoOptions{})), flight.ErrFailed)
		check.Same(t, "computed", runs.Load(), 3)
	})
}

// A value that is invalidated while it is computed anew is gone: neither the old nor the new one comes back.
func TestInvalidatedWhileItIsComputedAnew(t *testing.T) {
	for name, ends := range map[string]bool{"it fails": true, "it succeeds": false} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
			var runs atomic.Int64
			var fails atomic.Bool
			opts := flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
			wantDo(t, f, numbered(&runs, 0, nil), opts, "1", flight.Computed)
			pass(2 * time.Minute)
			fails.Store(ends)
			wantDo(t, f, numbered(&runs, 10*time.Second, &fails), opts, "1", flight.Stale)
			pass(time.Second)
			check.OK(t, g.Invalidate(t.Context(), "k"))
			wantEntry(t, g, "k", flight.Absent, "")
			pass(time.Minute)
			wantEntry(t, g, "k", flight.Absent, "")
			wantDo(t, g, numbered(&runs, 0, nil), opts, "3", flight.Computed)
		})
	}
}

// refreshedByTheDead stores the value "1", owned by "lives", under a TTL of a minute, lets another process compute it anew two minutes later,
// and kills that after a second. It returns a Flight with cfg, whose process lives, and the options and the number of computations.
func refreshedByTheDead(t *testing.T, b *bed, cfg flight.Config) (*flight.Flight, flight.DoOptions, *atomic.Int64) {
	t.Helper()
	dies, lives := cfg, cfg
	dies.ClaimTTL, dies.Instance, lives.Instance = 10*time.Second, "dies", "lives"
	f, die := killable(t, b, dies)
	g := b.Flight(t, lives)
	runs, opts := &atomic.Int64{}, flight.DoOptions{Stale: time.Hour, TTL: 60 * time.Second}
	wantDo(t, g, numbered(runs, 0, nil), opts, "1", flight.Computed)
	pass(2 * time.Minute)
	wantDo(t, f, numbered(runs, time.Minute, nil), opts, "1", flight.Stale)
	pass(time.Second)
	die()
	return g, opts, runs
}

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
			g, opts, _ := refreshedByTheDead(t, b, tt.cfg)
			start := time.Now()
			opts.StaleWait = time.Minute
			wantDo(t, g, func(context.Context) ([]byte, error) { return []byte("3"), nil }, opts, "3", flight.Computed)
			took(t, "taken over", start, 0, tt.want)
		})
	}
}

// The process that computes a value anew dies, and the next call comes long after its claim. The value is still there.
func TestValueSurvivesItsRefresher(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		g, opts, runs := refreshedByTheDead(t, b, flight.Config{})
		pass(30 * time.Minute)
		wantDo(t, g, numbered(runs, 0, nil), opts, "1", flight.Stale)
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
		g, _, _ := refreshedByTheDead(t, b, flight.Config{})
		for _, most := range []time.Duration{12 * time.Second, time.Millisecond} {
			began := time.Now()
			s, err := g.Wait(t.Context(), "k")
			check.That(t, err == nil && s.State == flight.Done && string(s.Value) == "1" && s.Stale() && s.Owner == "lives",
				"got %s with %q of %s, stale %t, %v; want the earlier value", s.State, s.Value, s.Owner, s.Stale(), err)
			took(t, "waited", began, 0, most)
			pass(time.Minute)
		}
	})
}
