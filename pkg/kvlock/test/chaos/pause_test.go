package chaos_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// The server pauses for 60 ms while a process takes a free lock, or gives one back that another waits for. No process
// hangs.
func TestFreeLockAfterServerPause(t *testing.T) {
	t.Parallel()
	const pause = 60 * time.Millisecond
	times := 30
	if crash.Long() {
		times = 1000
	}
	srv := crash.StartServer(t)
	r := crash.Random(t)(0)
	var lockers []*kvlock.Locker
	for range 2 {
		js := connect(t, srv.URL)
		check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: lockBucket}))
		l, err := kvlock.NewLocker(t.Context(), js, kvlock.LockerConfig{
			Bucket: lockBucket, Logger: slog.New(slog.DiscardHandler), OpTimeout: opTimeout,
		})
		check.OK(t, err)
		t.Cleanup(l.Close)
		lockers = append(lockers, l)
	}
	var took []time.Duration
	for i := range times {
		took = append(took, takeThroughPause(t, srv, lockers[i%2], lockers[r.IntN(2)], r, pause))
	}
	slices.Sort(took)
	t.Logf("%d pauses of %s: the lock was got %s after the server went on at the median, %s at the most",
		times, pause, took[times/2].Round(time.Microsecond), took[times-1].Round(time.Microsecond))
}

// opTimeout is the time without an answer after which a caller gets an error.
const opTimeout = 2 * time.Second

// takeThroughPause has first take the lock and give it back, and then take it, around a pause of the server. It returns how
// long after the pause that took.
func takeThroughPause(t *testing.T, srv *crash.Server, first, then *kvlock.Locker, r *rand.Rand, pause time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := first.Acquire(ctx, "l", kvlock.AcquireOptions{})
	check.OK(t, err)
	waits := r.IntN(2) == 0 // or comes when it is free
	if !waits {
		err = lease.Release(ctx)
	}
	type result struct {
		at  time.Time
		err error
	}
	done := make(chan result, 1)
	take := func() {
		lease, err := then.Acquire(ctx, "l", kvlock.AcquireOptions{})
		at := time.Now()
		if err == nil {
			err = lease.Release(ctx)
		}
		done <- result{at, err}
	}
	go take()
	if waits {
		sleep(ctx, time.Duration(r.Int64N(int64(2*time.Millisecond))))
	}
	stopped := time.Now()
	srv.Pause()
	var released sync.WaitGroup
	defer released.Wait()
	if waits {
		released.Go(func() {
			_ = lease.Release(ctx) //nolint:errcheck // the waiter's result shows it
		})
	}
	sleep(ctx, pause)
	srv.Continue()
	on := time.Now()
	got := <-done
	if err := errors.Join(err, got.err); err != nil {
		t.Fatalf("nobody got a free lock, %s after the server went on, which was stopped for %s: %v", time.Since(on), on.Sub(stopped), err)
	}
	return max(0, got.at.Sub(on))
}
