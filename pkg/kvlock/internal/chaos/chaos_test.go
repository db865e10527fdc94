// Package chaos_test takes locks, changes guarded values and computes keys in their own processes, while the
// processes are killed and frozen, cut off in one direction, and their servers paused, killed and deposed. Their common
// history is then checked: against models of a lock and of a fenced register, for results that were accepted, and for
// waiters that were left behind.
//
// Every process writes down what it does with the machine's one monotonic clock, so that "at once" means the same to all
// of them. The choices of a run come from its seed, which it prints; the machine's scheduling does not.
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

	"golang.org/x/sys/unix"

	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 4, role) }

func (s *stage) anyWorker(r *rand.Rand) *child { return s.workers[r.IntN(len(s.workers))] }

// between is a time from least to twice that.
func between(r *rand.Rand, least time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(least)))
}

// clientFaults happen to workers and to their connections.
var clientFaults = []fault{
	{"a process is killed", func(_ context.Context, s *stage, r *rand.Rand) {
		c := s.anyWorker(r)
		c.kill()
		s.launch(c)
	}},
	{"a process is stopped for longer than its TTL", func(ctx context.Context, s *stage, r *rand.Rand) {
		c := s.anyWorker(r)
		c.Pause()
		sleep(ctx, between(r, s.settings.TTL))
		c.Continue()
	}},
	{"nothing reaches a process", cutOff(crash.ToClient)},
	{"nothing comes from a process", cutOff(crash.ToServer)},
	{"a process is cut off", cutOff(crash.ToServer, crash.ToClient)},
}

func cutOff(directions ...crash.Direction) func(context.Context, *stage, *rand.Rand) {
	return func(ctx context.Context, s *stage, r *rand.Rand) {
		p := s.anyWorker(r).proxy
		p.Cut(directions...)
		sleep(ctx, between(r, s.settings.TTL))
		p.Heal()
	}
}

// serverFaults happen to a single server.
func serverFaults(srv *crash.Server) []fault {
	return []fault{
		{"the server pauses", func(ctx context.Context, _ *stage, r *rand.Rand) {
			srv.Pause()
			sleep(ctx, between(r, 60*time.Millisecond))
			srv.Continue()
		}},
		{"the server pauses for longer than the TTL", func(ctx context.Context, s *stage, r *rand.Rand) {
			srv.Pause()
			sleep(ctx, between(r, s.settings.TTL))
			srv.Continue()
		}},
		{"the server is killed and restarted", func(ctx context.Context, s *stage, r *rand.Rand) {
			srv.Kill()
			sleep(ctx, between(r, 100*time.Millisecond))
			check.ErrorIs(s.t, srv.Start(ctx), nil)
		}},
	}
}

// clusterFaults happen to the leader of one of the buckets.
func clusterFaults(cluster *natsrun.Cluster) []fault {
	leader := func(ctx context.Context, s *stage, r *rand.Rand) *natsrun.Node {
		n, err := cluster.StreamLeader(ctx, "KV_"+[]string{lockBucket, resultBucket}[r.IntN(2)])
		if err != nil {
			s.t.Error(err)
			return cluster.Nodes[r.IntN(len(cluster.Nodes))]
		}
		return n
	}
	return []fault{
		{"the leader is killed and restarted", func(ctx context.Context, s *stage, r *rand.Rand) {
			n := leader(ctx, s, r)
			err := n.Kill()
			sleep(ctx, between(r, time.Second))
			check.ErrorIs(s.t, errors.Join(err, n.Start(ctx)), nil)
		}},
		{"the leader is frozen and comes back", func(ctx context.Context, s *stage, r *rand.Rand) {
			n := leader(ctx, s, r)
			err := n.Pause()
			sleep(ctx, between(r, 1500*time.Millisecond))
			check.ErrorIs(s.t, errors.Join(err, n.Continue()), nil)
		}},
		{"the leader steps down", func(ctx context.Context, s *stage, _ *rand.Rand) {
			check.ErrorIs(s.t, cluster.StepDown(ctx, "KV_"+lockBucket), nil)
		}},
	}
}

// Of one server that pauses, and is killed and restarted.
func TestSingleServer(t *testing.T) {
	t.Parallel()
	srv := crash.StartServer(t)
	chaos(t, srv.URL, 1, workerTask{TTL: time.Second}, serverFaults(srv))
}

// Of three servers whose leader is killed, frozen and deposed.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	chaos(t, cluster.URLs(), 3, workerTask{TTL: time.Second}, clusterFaults(cluster))
}

func chaos(t *testing.T, urls string, replicas int, settings workerTask, server []fault) {
	t.Helper()
	rounds := 1
	if crash.Long() {
		rounds = 20
	}
	of := crash.Random(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	settings.Seed, settings.Tasks = of(0).Uint64()>>16, 2
	s := newStage(t, urls, replicas, settings, 3)
	sleep(ctx, 300*time.Millisecond)
	var lanes sync.WaitGroup
	lanes.Go(func() { s.run(ctx, of(1), rounds, clientFaults) })
	lanes.Go(func() { s.run(ctx, of(2), rounds, server) })
	lanes.Wait()
	s.finish()
}

// now is the machine's monotonic clock in nanoseconds: the same in every process.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

func sinceStart(at, start int64) time.Duration {
	return time.Duration(at - start).Round(time.Microsecond)
}

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
	var taken time.Time
	done := make(chan error, 1)
	take := func() {
		lease, err := then.Acquire(ctx, "l", kvlock.AcquireOptions{})
		taken = time.Now()
		if err == nil {
			err = lease.Release(ctx)
		}
		done <- err
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
			_ = lease.Release(ctx) // the waiter's result shows it
		})
	}
	sleep(ctx, pause)
	srv.Continue()
	on := time.Now()
	if err := errors.Join(err, <-done); err != nil {
		t.Fatalf("nobody got a free lock, %s after the server went on, which was stopped for %s: %v", time.Since(on), on.Sub(stopped), err)
	}
	return max(0, taken.Sub(on))
}
