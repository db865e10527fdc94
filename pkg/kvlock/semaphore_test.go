package kvlock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// semaphore is a Semaphore with a separate connection, as another process has it.
func semaphore(t *testing.T, b *testbed.Bed, permits int, opts ...nats.Option) *kvlock.Semaphore {
	t.Helper()
	_, js := natstest.Connect(t, b.Srv, opts...)
	s, err := kvlock.NewSemaphore(t.Context(), js, kvlock.SemaphoreConfig{
		Bucket: testbed.Bucket, Logger: testbed.Quiet(nil), Name: "ovens", Permits: permits, TTL: 10 * time.Second,
	})
	return testbed.Closed(t, s, err)
}

// However many processes want permits, no more are held than there are, and each process has its turn. Keys are apart.
func TestSemaphoreIsNeverExceeded(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const permits, fair = 3, 300
		turns := 150
		if testing.Short() {
			turns = 80 // for longer than the 4 seconds below
		}
		var held, most atomic.Int64
		var all sync.WaitGroup
		var done [4]atomic.Int64
		for process := range done {
			s := semaphore(t, b, permits)
			for range 5 {
				all.Go(func() {
					for range turns {
						check.ErrorIs(t, s.Do(t.Context(), "k", func(context.Context) error {
							n := held.Add(1)
							for m := most.Load(); n > m; m = most.Load() {
								most.CompareAndSwap(m, n)
							}
							natstest.Pass(10 * time.Millisecond)
							held.Add(-1)
							return nil
						}), nil)
						done[process].Add(1)
					}
				})
			}
		}
		natstest.Pass(4 * time.Second)
		for i := range done {
			n := done[i].Load()
			check.That(t, n >= fair/2, "process %d had %d turns, want about %d", i, n, fair)
		}
		all.Wait()
		check.Equal(t, most.Load(), permits, "most.Load()")
		s := semaphore(t, b, 1)
		for _, key := range []string{"a", "b"} {
			check.OK(t, check.Err(s.Acquire(t.Context(), key)))
		}
		for lock, err := range b.Locker(t, kvlock.LockerConfig{}).List(t.Context(), "") {
			t.Errorf("locks are listed: %+v, %v", lock, err)
		}
	})
}

// A process whose calls follow each other at once, so that none of them waits, leaves its permit to another that does.
func TestPermitIsLeftToAnotherProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // each call has the permit before a goroutine can give it back
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		busy, other := semaphore(t, b, 1), semaphore(t, b, 1)
		var calls sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		calls.Go(func() {
			for ctx.Err() == nil {
				permit, err := busy.Acquire(t.Context(), "k")
				check.ErrorIs(t, err, nil)
				natstest.Pass(time.Millisecond)
				permit.Release()
			}
		})
		natstest.Pass(time.Second)
		waits, end := context.WithTimeout(t.Context(), 5*time.Second)
		for n := range 10 {
			if err := other.Do(waits, "k", func(context.Context) error { return nil }); err != nil {
				t.Errorf("turn %d: %v", n, err)
				break
			}
		}
		end()
		cancel()
		calls.Wait()
	})
}

// A write of the record is not read by all that wait: those behind the first in line have nothing to do.
func TestFewOfManyThatWaitRead(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const processes, turns = 24, 10
		var reads atomic.Int64
		nc, _ := natstest.Connect(t, b.Srv)
		check.OK(t, check.Err(nc.Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { reads.Add(1) })))
		var all sync.WaitGroup
		for range processes {
			s := semaphore(t, b, 1)
			all.Go(func() {
				for range turns {
					check.ErrorIs(t, s.Do(t.Context(), "k", func(context.Context) error { natstest.Pass(20 * time.Millisecond); return nil }), nil)
				}
			})
		}
		all.Wait()
		check.OK(t, nc.Flush())
		n := reads.Load()
		check.That(t, n != 0 && n <= processes*turns*20, "%d reads for %d turns", n, processes*turns)
	})
}

// A process that is cut off loses its permits before others have them. One that closes gives them up at once.
func TestPermitsOfTheDeadAndTheClosed(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		first, second, third := semaphore(t, b, 1, p.Through()), semaphore(t, b, 1), semaphore(t, b, 1)
		lost := check.Must(first.Acquire(t.Context(), "k"))(t)
		p.Partition()
		start := time.Now()
		permit := check.Must(second.Acquire(t.Context(), "k"))(t)
		testbed.Took(t, "taken over", start, 6*time.Second, 20*time.Second)
		check.ErrorIs(t, context.Cause(lost.Context()), kvlock.ErrLost)
		waits := make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { waits <- check.Err(third.Acquire(ctx, "k")) }()
		natstest.Pass(time.Second)
		bored := errors.New("bored")
		cancel(bored)
		check.ErrorIs(t, <-waits, bored)

		go func() { waits <- check.Err(second.Acquire(t.Context(), "k")) }()
		natstest.Pass(time.Second)
		start = time.Now()
		second.Close()
		check.ErrorIs(t, <-waits, kvlock.ErrClosed)
		check.ErrorIs(t, context.Cause(permit.Context()), kvlock.ErrClosed)
		check.ErrorIs(t, check.Err(second.Acquire(t.Context(), "k")), kvlock.ErrClosed)
		permit.Release()
		check.OK(t, third.Do(t.Context(), "k", func(context.Context) error { return nil }))
		testbed.Took(t, "the permit of a closed process passed on", start, 0, 100*time.Millisecond)
		p.Heal()
	})
}

func limiter(t *testing.T, b *testbed.Bed, cfg kvlock.RateLimiterConfig) *kvlock.RateLimiter {
	t.Helper()
	_, js := natstest.Connect(t, b.Srv)
	cfg.Bucket, cfg.Logger, cfg.Name = testbed.Bucket, testbed.Quiet(nil), "provider"
	r, err := kvlock.NewRateLimiter(t.Context(), js, cfg)
	return testbed.Closed(t, r, err)
}

// Processes together keep to the rate: no more in any period than it and the burst, and hardly fewer.
func TestRateIsKept(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const rate, burst, n = 10, 3, 60
		var mu sync.Mutex
		var calls []time.Time
		var all sync.WaitGroup
		start := time.Now()
		for range 3 {
			r := limiter(t, b, kvlock.RateLimiterConfig{Burst: burst, Per: time.Second, Rate: rate})
			for range n / 3 {
				all.Go(func() {
					check.ErrorIs(t, r.Wait(t.Context(), "k"), nil)
					mu.Lock()
					defer mu.Unlock()
					calls = append(calls, time.Now())
				})
			}
		}
		all.Wait()
		slices.SortFunc(calls, time.Time.Compare)
		for i := rate + burst; i < n; i++ {
			check.That(t, calls[i].Sub(calls[i-rate-burst]) >= 990*time.Millisecond,
				"calls %d to %d were made in %s", i-rate-burst, i, calls[i].Sub(calls[i-rate-burst]))
		}
		testbed.Took(t, "all calls", start, 0, 7*time.Second)
	})
}

func TestInvalidLimits(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	for name, cfg := range map[string]kvlock.SemaphoreConfig{
		"no name": {Permits: 1}, "name": {Name: "a.b", Permits: 1}, "no permits": {Name: "a"}, "TTL": {Name: "a", Permits: 1, TTL: 1},
	} {
		cfg.Bucket = testbed.Bucket
		check.That(t, check.Err(kvlock.NewSemaphore(t.Context(), b.JS, cfg)) != nil, "%s was accepted", name)
	}
	for name, cfg := range map[string]kvlock.RateLimiterConfig{
		"no rate": {Name: "a", Per: time.Second}, "no time": {Name: "a", Rate: 1}, "burst": {Name: "a", Per: time.Second, Rate: 1, Burst: -1},
	} {
		cfg.Bucket = testbed.Bucket
		check.That(t, check.Err(kvlock.NewRateLimiter(t.Context(), b.JS, cfg)) != nil, "%s was accepted", name)
	}
}
