package flight_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The largest value that can be stored can also be carried.
func TestLargestValueIsCarried(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{CompressAbove: -1, Instance: strings.Repeat("<", 256)})
		opts := flight.DoOptions{Fingerprint: strings.Repeat("<", 1024), Stale: time.Hour, TTL: time.Minute}
		fits, over := 0, 1<<20
		for over-fits > 1 {
			size := (fits + over) / 2
			_, err := f.Do(t.Context(), fmt.Sprint("try", size), func(context.Context) ([]byte, error) { return make([]byte, size), nil }, opts)
			if errors.Is(err, kvlock.ErrTooLarge) {
				over = size
				continue
			}
			check.OK(t, err)
			fits = size
		}
		key := fmt.Sprint("try", fits)
		pass(2 * time.Minute)
		fn := func(context.Context) ([]byte, error) { pass(time.Minute); return nil, errOven }
		for range 2 {
			r, err := f.Do(t.Context(), key, fn, opts)
			check.Require(t, err == nil && len(r.Value) == fits && r.Outcome == flight.Stale, "got %d bytes, %s, %v", len(r.Value), r.Outcome, err)
			pass(time.Second)
			s := get(t, f, key)
			check.That(t, s.State == flight.Pending && len(s.Value) == fits, "%s with %d bytes, want pending with %d", s.State, len(s.Value), fits)
			pass(2 * time.Minute)
		}
	})
}

// The claim of a process that died while it computed a value anew keeps no process from computing once it is over,
// though the server keeps its record for the value in it.
func TestClaimThatTheServerDoesNotEnd(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, g *flight.Flight, runs *atomic.Int64){
		"early": func(t *testing.T, g *flight.Flight, runs *atomic.Int64) {
			t.Helper()
			opts := flight.DoOptions{Refresh: 0.5, TTL: 200 * time.Second}
			wantDo(t, g, numbered(runs, 0, nil), opts, "1", flight.Cached)
			pass(time.Second)
			wantDo(t, g, nil, opts, "3", flight.Cached)
		},
		"by Begin": func(t *testing.T, g *flight.Flight, _ *atomic.Int64) {
			t.Helper()
			complete(t, begin(t, g, "k", flight.BeginOptions{}), "v")
		},
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			f, die := killable(t, b, flight.Config{ClaimTTL: 10 * time.Second})
			g := b.Flight(t, flight.Config{ProbeInterval: -1})
			var runs atomic.Int64
			opts := flight.DoOptions{Refresh: 0.5, TTL: 200 * time.Second}
			wantDo(t, g, numbered(&runs, 0, nil), opts, "1", flight.Computed)
			pass(160 * time.Second)
			wantDo(t, f, numbered(&runs, time.Hour, nil), opts, "1", flight.Cached)
			pass(time.Second)
			die()
			check.Is(t, check.Err(g.Begin(t.Context(), "k", flight.BeginOptions{})), flight.ErrTaken)
			wantDo(t, g, nil, opts, "1", flight.Cached)
			pass(15 * time.Second)
			next(t, g, &runs)
		})
	}
}

// Random calls, failures, invalidations and passing time, from three processes on one key. Each returned value is as
// old as its outcome says, no older than an earlier returned value, and not of before an invalidation; and one process
// computes at a time.
func TestRandomRefreshes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		run, totals := 0, map[flight.Outcome]int{}
		sequence := func(rt *rapid.T) {
			run++
			m := &refreshes{
				T: rt, b: b, key: fmt.Sprint("k", run), ctx: t.Context(), outcomes: totals, born: map[int64]time.Time{},
				running: map[int64]context.Context{}, claimTTL: 5 * time.Second,
			}
			m.opts = flight.DoOptions{
				Refresh:   rapid.SampledFrom([]float64{0, 0.3, 0.7}).Draw(rt, "refresh"),
				Stale:     time.Duration(rapid.SampledFrom([]int{0, 20, 60}).Draw(rt, "stale")) * time.Second,
				StaleWait: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "wait")) * time.Second,
				TTL:       time.Duration(rapid.IntRange(5, 20).Draw(rt, "ttl")) * time.Second, // most are seen to end
			}
			cfg := flight.Config{ClaimTTL: m.claimTTL}
			for range 3 {
				m.flights = append(m.flights, b.Flight(t, cfg))
			}
			rt.Repeat(map[string]func(*rapid.T){
				"do":         m.do,
				"many do":    m.doTogether,
				"invalidate": m.invalidate,
				"time": func(t *rapid.T) {
					pass(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
				},
				"fails": func(t *rapid.T) { m.fails.Store(rapid.Bool().Draw(t, "fails")) },
			})
			for _, f := range m.flights {
				f.Close()
			}
		}
		const enough, most = 10, 500
		seldom := func() int { return min(totals[flight.Cached], totals[flight.Computed], totals[flight.Stale]) }
		for seldom() < enough && run < most && !t.Failed() { // some choices make hardly anything stale
			rapid.Check(bubbled{t}, sequence)
		}
		t.Logf("%v in %d runs", totals, run)
		check.That(t, seldom() >= enough, "too little happened")
	})
}

type refreshes struct {
	*rapid.T

	b        *bed
	ctx      context.Context //nolint:containedctx // of the test
	key      string
	claimTTL time.Duration
	opts     flight.DoOptions
	flights  []*flight.Flight
	fails    atomic.Bool
	runs     atomic.Int64
	mu       sync.Mutex
	running  map[int64]context.Context
	born     map[int64]time.Time // when the value was returned by its function
	newest   int64               // that was seen
	least    int64               // that may be seen: a value begun before an invalidation may not
	noticed  time.Time           // when all that were begun before an invalidation have noticed it
	outcomes map[flight.Outcome]int
}

func (m *refreshes) fn(ctx context.Context) ([]byte, error) {
	n := m.runs.Add(1)
	m.mu.Lock()
	for other, running := range m.running {
		if running.Err() == nil && ctx.Err() == nil && !time.Now().Before(m.noticed) {
			m.Errorf("%d is computed while %d is", n, other)
		}
	}
	m.running[n] = ctx //nolint:fatcontext // none is within another
	m.mu.Unlock()
	pass(time.Duration(1+n%4) * time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, n)
	if m.fails.Load() {
		return nil, errOven
	}
	m.born[n] = time.Now()
	return fmt.Append(nil, n), nil
}

func (m *refreshes) do(t *rapid.T) {
	m.call(m.flights[rapid.IntRange(0, len(m.flights)-1).Draw(t, "flight")])
}

func (m *refreshes) doTogether(*rapid.T) {
	var all sync.WaitGroup
	for range 3 {
		for _, f := range m.flights {
			all.Go(func() { m.call(f) })
		}
	}
	all.Wait()
}

func (m *refreshes) call(f *flight.Flight) {
	r, err := f.Do(m.ctx, m.key, m.fn, m.opts)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if !errors.Is(err, errOven) && !errors.Is(err, flight.ErrFailed) {
			m.Errorf("got %v", err)
		}
		return
	}
	m.outcomes[r.Outcome]++
	var n int64
	if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
		m.Errorf("got %q", r.Value)
	}
	age := now.Sub(m.born[n])
	limit := m.opts.TTL
	if r.Outcome == flight.Stale {
		limit += m.opts.Stale
	}
	limit += m.opts.StaleWait + 50*time.Millisecond
	switch {
	case n < m.newest && r.Outcome != flight.Stale:
		m.Errorf("got %d, %s, after %d", n, r.Outcome, m.newest)
	case n <= m.least:
		m.Errorf("got %d, which was begun before an invalidation: want one after %d", n, m.least)
	case age > limit:
		m.Errorf("got %d, %s, %s old; want at most %s", n, r.Outcome, age, limit)
	case r.Outcome == flight.Stale && age < m.opts.TTL-50*time.Millisecond:
		m.Errorf("got %d as stale, %s old", n, age)
	}
	m.newest = max(m.newest, n)
}

func (m *refreshes) invalidate(t *rapid.T) {
	if err := m.flights[0].Invalidate(m.ctx, m.key); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.least = m.runs.Load()
	m.noticed = time.Now().Add(m.claimTTL/3 + 50*time.Millisecond) // at the next renewal
}
