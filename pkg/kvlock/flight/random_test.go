package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Random calls, failures, invalidations and passing time, from three processes on one key. Each returned value is no older than its TTL,
// nor than an earlier returned value, and not of before an invalidation; and one process computes at a time.
func TestRandomCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		run, totals := 0, map[flight.Outcome]int{}
		sequence := func(rt *rapid.T) {
			run++
			m := &calls{
				T: rt, b: b, key: fmt.Sprint("k", run), ctx: t.Context(), outcomes: totals, born: map[int64]time.Time{},
				running: map[int64]context.Context{}, claimTTL: 5 * time.Second,
			}
			m.opts = flight.DoOptions{
				TTL: time.Duration(rapid.IntRange(5, 20).Draw(rt, "ttl")) * time.Second, // most are seen to end
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
		seldom := func() int { return min(totals[flight.Cached], totals[flight.Computed], totals[flight.Coalesced]) }
		for seldom() < enough && run < most && !t.Failed() {
			rapid.Check(bubbled{t}, sequence)
		}
		t.Logf("%v in %d runs", totals, run)
		check.That(t, seldom() >= enough, "too little happened")
	})
}

type calls struct {
	*rapid.T

	b        *bed
	ctx      context.Context
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

func (m *calls) fn(ctx context.Context) ([]byte, error) {
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

func (m *calls) do(t *rapid.T) {
	m.call(m.flights[rapid.IntRange(0, len(m.flights)-1).Draw(t, "flight")])
}

func (m *calls) doTogether(*rapid.T) {
	var all sync.WaitGroup
	for range 3 {
		for _, f := range m.flights {
			all.Go(func() { m.call(f) })
		}
	}
	all.Wait()
}

func (m *calls) call(f *flight.Flight) {
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
	limit := m.opts.TTL + lateness
	switch {
	case n < m.newest:
		m.Errorf("got %d, %s, after %d", n, r.Outcome, m.newest)
	case n <= m.least:
		m.Errorf("got %d, which was begun before an invalidation: want one after %d", n, m.least)
	case age > limit:
		m.Errorf("got %d, %s, %s old; want at most %s", n, r.Outcome, age, limit)
	}
	m.newest = max(m.newest, n)
}

func (m *calls) invalidate(t *rapid.T) {
	if err := m.flights[0].Invalidate(m.ctx, m.key); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.least = m.runs.Load()
	m.noticed = time.Now().Add(m.claimTTL/3 + 50*time.Millisecond) // at the next renewal
}
