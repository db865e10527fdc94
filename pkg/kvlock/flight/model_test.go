package flight_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// model is the state that a key has to have after the operations so far.
type model struct {
	state   flight.State
	value   string
	holder  *flight.Claim // of the present claim, nil when no known one may write
	claim   string
	handoff bool
	expiry  time.Time
}

// machine runs random operations of three processes on one key, in fake time, and compares with the model.
type machine struct {
	ctx     context.Context
	key     string
	flights []*flight.Flight
	claims  []*flight.Claim // all there ever were, most of them zombies
	refs    []string
	seen    []flight.Entry // all entries that were read, in any state
	now     model
	token   kvlock.Token
	writes  int
}

// settleTime is more than the server may be late with an expiry.
const settleTime = 500 * time.Millisecond

// wait lets time pass, and a little more when it stops where the server may or may not have removed the key.
func (m *machine) wait(d time.Duration) {
	natstest.Pass(d)
	for !m.now.expiry.IsZero() && !time.Now().Before(m.now.expiry) {
		if time.Since(m.now.expiry) >= settleTime {
			m.now = model{}
			return
		}
		natstest.Pass(settleTime)
	}
}

func (m *machine) took(t *rapid.T, c *flight.Claim, handoff bool, ttl time.Duration) {
	if c.Token().Compare(m.token) <= 0 {
		t.Fatalf("token %s after %s", c.Token(), m.token)
	}
	m.token = c.Token()
	m.claims, m.refs = append(m.claims, c), append(m.refs, c.Ref())
	m.now = model{state: flight.Pending, holder: c, claim: c.ID(), handoff: handoff, expiry: time.Now().Add(ttl)}
}

func (m *machine) flight(t *rapid.T) *flight.Flight {
	return m.flights[rapid.IntRange(0, len(m.flights)-1).Draw(t, "flight")]
}

func (m *machine) ttl(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 40).Draw(t, "ttl")) * time.Second
}

// expect compares the error with the model's, and reports whether the operation succeeded.
func (m *machine) expect(t *rapid.T, op string, err, want error) bool {
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v, with the key %s", op, err, want, m.now.state)
	}
	return err == nil
}

func (m *machine) begin(t *rapid.T) {
	ttl, handoff := m.ttl(t), rapid.Bool().Draw(t, "handoff")
	back := rapid.IntRange(0, min(3, len(m.seen))).Draw(t, "seen so many reads ago")
	seen := append(slices.Clone(m.seen), flight.Entry{})[len(m.seen)-back]
	c, err := m.flight(t).Begin(m.ctx, m.key, flight.BeginOptions{TTL: ttl, HandOff: handoff, Seen: seen})
	if m.expect(t, "Begin", err, m.taken(m.now.state == flight.Absent)) {
		m.took(t, c, handoff, ttl)
	}
}

func (m *machine) resume(t *rapid.T) {
	if len(m.refs) == 0 {
		t.Skip("no reference yet")
	}
	ref, ttl := rapid.SampledFrom(m.refs).Draw(t, "ref"), m.ttl(t)
	ours := m.now.state == flight.Pending && (m.now.handoff || len(ref) > len(m.now.claim) && ref[:len(m.now.claim)] == m.now.claim)
	c, err := m.flight(t).Resume(m.ctx, m.key, ref, flight.ResumeOptions{TTL: ttl})
	if m.expect(t, "Resume", err, m.taken(m.now.state == flight.Absent || ours)) {
		m.took(t, c, false, ttl)
	}
}

func (m *machine) taken(free bool) error {
	if free {
		return nil
	}
	return flight.ErrTaken
}

// write is an operation of a claim, mostly of one that has lost.
func (m *machine) write(op string, do func(*rapid.T, *flight.Claim) (model, error)) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(m.claims) == 0 {
			t.Skip("no claim yet")
		}
		c := m.claims[rapid.IntRange(0, len(m.claims)-1).Draw(t, "claim")]
		if m.now.holder != nil && rapid.Bool().Draw(t, "by the holder") {
			c = m.now.holder
		}
		var want error
		if c != m.now.holder {
			want = kvlock.ErrLost
		}
		next, err := do(t, c)
		if m.expect(t, op, err, want) {
			m.now = next
			m.writes++
		}
	}
}

func (m *machine) invalidate(t *rapid.T) {
	if err := m.flight(t).Invalidate(m.ctx, m.key); err != nil {
		t.Fatal(err)
	}
	m.now = model{}
}

func (m *machine) check(t *rapid.T) {
	for i, f := range m.flights {
		s, err := f.Get(m.ctx, m.key)
		if err != nil || s.State != m.now.state || string(s.Value) != m.now.value || s.State == flight.Pending && s.Claim != m.now.claim {
			t.Fatalf("flight %d reads %+v, %v; want %+v", i, s, err, m.now)
		}
		m.seen = append(m.seen, s)
	}
}

// bubbled hides the test's deadline, which is of real time, from rapid.
type bubbled struct{ *testing.T }

// Random sequences over every arrow, from several processes, with time passing between them.
func TestRandomSequences(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		flights := []*flight.Flight{b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})}
		ctx, run, writes := t.Context(), 0, 0
		rapid.Check(bubbled{t}, func(t *rapid.T) {
			run++
			m := &machine{ctx: ctx, key: fmt.Sprintf("k%d", run), flights: flights}
			t.Repeat(map[string]func(*rapid.T){
				"":       m.check,
				"begin":  m.begin,
				"resume": m.resume,
				"time":   func(t *rapid.T) { m.wait(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "ms")) * time.Millisecond) },
				"renew": m.write("Renew", func(t *rapid.T, c *flight.Claim) (model, error) {
					next, ttl := m.now, m.ttl(t)
					next.handoff, next.expiry = false, time.Now().Add(ttl)
					return next, c.Renew(m.ctx, ttl)
				}),
				"hand off": m.write("HandOff", func(t *rapid.T, c *flight.Claim) (model, error) {
					next, ttl := m.now, m.ttl(t)
					next.handoff, next.holder, next.expiry = true, nil, time.Now().Add(ttl)
					return next, c.HandOff(m.ctx, ttl)
				}),
				"complete": m.write("Complete", func(t *rapid.T, c *flight.Claim) (model, error) {
					value, ttl := rapid.String().Draw(t, "value"), m.ttl(t)
					_, err := c.Complete(m.ctx, []byte(value), ttl)
					return model{state: flight.Done, value: value, expiry: time.Now().Add(ttl)}, err
				}),
				"fail": m.write("Fail", func(t *rapid.T, c *flight.Claim) (model, error) {
					ttl := m.ttl(t)
					return model{state: flight.Failed, expiry: time.Now().Add(ttl)}, c.Fail(m.ctx, "r", ttl)
				}),
				"fail now":   m.write("Fail", func(_ *rapid.T, c *flight.Claim) (model, error) { return model{}, c.Fail(m.ctx, "r", 0) }),
				"release":    m.write("Release", func(_ *rapid.T, c *flight.Claim) (model, error) { return model{}, c.Release(m.ctx) }),
				"invalidate": m.invalidate,
			})
			writes += m.writes
		})
		check.That(t, writes >= run, "only %d writes of holders in %d sequences", writes, run)
	})
}

// Three processes read and write, one of them with a memory that is too small for all; pushes get lost all the time. No
// reader gets a value that was replaced longer ago than the bound, nor anything older than it had before.
func TestMemoryIsCoherent(t *testing.T) {
	of := crash.Random(t)
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		r := of(0)
		var flights []*flight.Flight
		for i := range 3 {
			p := natstest.NewProxy(t, b.Srv)
			lossy := of(uint64(1 + i))
			p.Filter(natstest.Losing(func(f natstest.Frame) bool { return testbed.IsPush(f) && lossy.IntN(20) == 0 }))
			cfg := remembering()
			if i == 2 {
				cfg.Memory.MaxBytes = 4 << 10
			}
			flights = append(flights, b.Flight(t, cfg, p.Through()))
		}
		type stored struct {
			revision uint64
			at       time.Time
		}
		newest := map[string][]stored{} // the acknowledged values of each key
		seen := [3]map[string]uint64{{}, {}, {}}
		steps := 20_000
		if testing.Short() {
			steps = 6_000
		}
		for range steps {
			natstest.Pass(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
			i, key := r.IntN(3), fmt.Sprintf("%c.%d", 'a'+r.IntN(3), r.IntN(8))
			f := flights[i]
			switch r.IntN(20) {
			case 0:
				s := replace(t, f, key, strings.Repeat("v", r.IntN(300)))
				newest[key] = append(newest[key], stored{s.Revision, time.Now()})
			case 1:
				check.OK(t, f.Invalidate(t.Context(), key))
				newest[key] = append(newest[key], stored{b.Present(t, key).Sequence, time.Now()})
			default:
				s := testbed.Get(t, f, key)
				if s.State != flight.Done {
					continue
				}
				check.Require(t, s.Revision >= seen[i][key], "process %d reads %s at %d after %d", i, key, s.Revision, seen[i][key])
				seen[i][key] = s.Revision
				for _, w := range newest[key] {
					if age := time.Since(w.at); w.revision > s.Revision && age > memoryBound {
						t.Fatalf("process %d reads %s at %d, replaced at %d %s ago", i, key, s.Revision, w.revision, age)
					}
				}
			}
		}
		hits := uint64(0)
		for _, f := range flights {
			s := f.Stats().Memory
			t.Logf("%+v", s)
			hits += s.Hits
		}
		check.That(t, hits >= 1000, "%d hits: nothing was tested", hits)
	})
}

// Random calls, failures, invalidations and passing time, from three processes on one key. Each returned value is no older than its TTL,
// nor than an earlier returned value, and not of before an invalidation; and one process computes at a time.
func TestRandomCalls(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		run, totals := 0, map[flight.Outcome]int{}
		sequence := func(rt *rapid.T) {
			run++
			m := &calls{
				T: rt, b: b, key: fmt.Sprint("k", run), ctx: t.Context(), outcomes: totals, born: map[int64]time.Time{},
				running: map[int64]context.Context{}, claimTTL: 5 * time.Second,
			}
			m.opts.TTL = time.Duration(rapid.IntRange(5, 20).Draw(rt, "ttl")) * time.Second // most are seen to end
			for range 3 {
				m.flights = append(m.flights, b.Flight(t, flight.Config{ClaimTTL: m.claimTTL}))
			}
			rt.Repeat(map[string]func(*rapid.T){
				"do":         m.do,
				"many do":    m.doTogether,
				"invalidate": m.invalidate,
				"time": func(t *rapid.T) {
					natstest.Pass(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
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
		check.That(t, seldom() >= enough, "too little happened: %v in %d runs", totals, run)
	})
}

type calls struct {
	*rapid.T

	b        *testbed.Bed
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
	natstest.Pass(time.Duration(1+n%4) * time.Second)
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
	limit := m.opts.TTL + testbed.Lateness
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
