package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

const (
	lockBucket   = "locks"
	resultBucket = "results"
	valueBucket  = "values"
)

// workerTask is the work of a worker until it is stopped.
type workerTask struct {
	Name          string
	Seed          uint64
	TTL           time.Duration // of locks and claims
	Tasks         int           // that take locks at once, and as many that compute
	HoldUntilLost bool          // take one lock and keep it until it is lost
	URLs          string
}

// lockNames are the locks of a run, each with a value that it guards. The last is held for long, so that a fault hits a
// holder that renews, and its waiters.
var lockNames = []string{"gate", "till", "vault"}

// worker is such a process.
type worker struct {
	workerTask

	flight *flight.Flight
	guard  *kvlock.Guard
	locker *kvlock.Locker
	mu     sync.Mutex
	out    *json.Encoder
}

var role = crash.Role[workerTask]{Name: "worker", Run: func(ctx context.Context, task workerTask) error {
	w := &worker{workerTask: task, out: json.NewEncoder(os.Stdout)}
	return w.run(ctx)
}}

// run takes turns until working ends, and brings those to an end that have begun.
func (w *worker) run(working context.Context) error {
	ctx := context.WithoutCancel(working)
	nc, err := nats.Connect(w.URLs, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.IgnoreDiscoveredServers(), nats.Timeout(500*time.Millisecond), nats.PingInterval(500*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := w.open(ctx, nc); err != nil {
		return err
	}
	var all sync.WaitGroup
	if !w.HoldUntilLost {
		all.Go(func() {
			t := &task{by: w.Name + ".keep", r: rand.New(rand.NewPCG(w.Seed, 1000))}
			for working.Err() == nil {
				t.turns++
				w.keep(working, t)
			}
		})
	}
	turns := []func(context.Context, *task){w.lock, w.compute, w.claim}
	if w.HoldUntilLost {
		turns = []func(context.Context, *task){w.holdUntilLost}
	}
	for i := range w.Tasks {
		for j, turn := range turns {
			t := &task{by: fmt.Sprintf("%s.%d.%d", w.Name, i, j), r: rand.New(rand.NewPCG(w.Seed, uint64(10*i+j)))}
			all.Go(func() {
				for working.Err() == nil {
					t.turns++
					turn(ctx, t)
				}
			})
		}
	}
	all.Wait()
	w.locker.Close()
	w.flight.Close()
	w.guard.Close()
	return nil
}

// open binds to the buckets, however long that takes: it may be started while no server answers.
func (w *worker) open(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	for err = errors.New("not yet"); err != nil; {
		w.locker, err = kvlock.NewLocker(ctx, js, kvlock.LockerConfig{
			Bucket: lockBucket, Instance: w.Name, Logger: quiet, TTL: w.TTL,
		})
	}
	for err = errors.New("not yet"); err != nil; {
		w.flight, err = flight.New(ctx, js, flight.Config{
			Bucket: resultBucket, ClaimTTL: w.TTL, Instance: w.Name, Logger: quiet,
		})
	}
	for err = errors.New("not yet"); err != nil; {
		w.guard, err = kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: valueBucket, Instance: w.Name})
	}
	return nil
}

// task is one goroutine of a worker.
type task struct {
	by    string
	r     *rand.Rand
	turns int
}

// unique returns a value that no other turn writes.
func (t *task) unique() string { return fmt.Sprintf("%s/%d", t.by, t.turns) }

func (t *task) nap(upTo time.Duration) time.Duration { return time.Duration(t.r.Int64N(int64(upTo))) }

// say writes an event down. It is in the pipe when say returns, even if the process is killed then.
func (w *worker) say(e event) {
	w.mu.Lock()
	err := w.out.Encode(e)
	w.mu.Unlock()
	if err != nil {
		os.Exit(1) // the reader of the output has gone
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
