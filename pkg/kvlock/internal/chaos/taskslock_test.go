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

// worker is such a process.
type worker struct {
	workerTask

	flight *flight.Flight
	guard  *kvlock.Guard
	locker *kvlock.Locker
	mu     sync.Mutex
	out    *json.Encoder
}

// lock is a turn with a lock that is wanted all the time.
func (w *worker) lock(ctx context.Context, t *task) {
	last := len(lockNames) - 1
	w.use(ctx, t, lockNames[t.r.IntN(last)], t.nap(5*time.Millisecond))
}

// keep is a turn with the lock that is held for long.
func (w *worker) keep(ctx context.Context, t *task) {
	w.use(ctx, t, lockNames[len(lockNames)-1], w.TTL/2+t.nap(3*w.TTL/2))
}

// use takes a lock, writes the guarded value, and releases the lock.
func (w *worker) use(ctx context.Context, t *task, name string, hold time.Duration) {
	wait := ctx
	if t.r.IntN(10) == 0 { // gives up, perhaps
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, t.nap(100*time.Millisecond))
		defer cancel()
	}
	from := now()
	lease, err := w.locker.Acquire(wait, name, kvlock.AcquireOptions{})
	to := now()
	if err != nil {
		e := event{Kind: gaveUp, By: t.by, Name: name, Error: err.Error(), From: from, To: to}
		if wait.Err() == nil && !errors.Is(err, kvlock.ErrUnavailable) {
			e.Kind = failed
		}
		w.say(e)
		sleep(ctx, 10*time.Millisecond)
		return
	}
	held := event{By: t.by, Lease: t.unique(), Name: name, Token: lease.Token()}
	w.tell(held, acquired, from, to)
	if lease.Context().Err() == nil { // or it was over before Acquire returned: the process was frozen in it
		w.tell(held, alive, to, to)
	}
	w.hold(ctx, t, lease, held, hold)
	ctx = context.WithoutCancel(ctx)
	if t.r.IntN(4) == 0 { // a zombie: it writes though the lease is over, or about to be
		defer w.write(ctx, t, held, "late")
	}
	defer w.reportAlive(lease, held)()
	from = now()
	if err := lease.Release(ctx); err != nil {
		held.Error = err.Error()
	}
	w.tell(held, released, from, now())
}

// reportAlive says all the time whether the lease is alive, until stop is called.
func (w *worker) reportAlive(lease *kvlock.Lease, held event) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for at := now(); lease.Context().Err() == nil; at = now() {
			w.tell(held, alive, at, at)
			select {
			case <-end:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// hold works under the lease, and says while it is alive.
func (w *worker) hold(ctx context.Context, t *task, lease *kvlock.Lease, held event, how time.Duration) {
	until := now() + int64(how)
	w.write(context.WithoutCancel(ctx), t, held, "first")
	for {
		at := now() // before it looks: a process that is alive then was alive at that time, too
		if lease.Context().Err() != nil {
			return
		}
		w.tell(held, alive, at, at)
		if at >= until || ctx.Err() != nil {
			return
		}
		sleep(lease.Context(), 2*time.Millisecond)
	}
}

// holdUntilLost takes the first lock, keeps it until it is lost, and says all the time that it is alive.
func (w *worker) holdUntilLost(ctx context.Context, t *task) {
	from := now()
	lease, err := w.locker.Acquire(ctx, lockNames[0], kvlock.AcquireOptions{})
	to := now()
	if err != nil {
		w.say(event{Kind: gaveUp, By: t.by, Name: lockNames[0], Error: err.Error(), From: from, To: to})
		return
	}
	held := event{By: t.by, Lease: t.unique(), Name: lockNames[0], Token: lease.Token()}
	w.tell(held, acquired, from, to)
	for {
		at := now()
		if lease.Context().Err() != nil {
			break
		}
		w.tell(held, alive, at, at)
		for now()-at < int64(200*time.Microsecond) { //nolint:revive // it works
		}
	}
	held.Error = context.Cause(lease.Context()).Error()
	w.tell(held, released, now(), now())
	_ = lease.Release(ctx) // it is lost
}

// write changes the value that the lock guards.
func (w *worker) write(ctx context.Context, t *task, held event, which string) {
	held.Value = t.unique() + " " + which
	from := now()
	w.tell(held, writes, from, from)
	err := w.guard.Put(ctx, held.Name, held.Token, []byte(held.Value))
	fenced, isFenced := errors.AsType[*kvlock.FencedError](err)
	switch {
	case err == nil:
		held.Answer = accepted
	case isFenced && !fenced.Unknown:
		held.Answer = refused
	default:
		held.Answer, held.Error = unknown, err.Error()
	}
	w.tell(held, wrote, from, now())
}

func (w *worker) tell(e event, k kind, from, to int64) {
	e.Kind, e.From, e.To = k, from, to
	w.say(e)
}

// currentKey is the key that all processes work on, for a window of time, without having to agree on it.
func currentKey(prefix string, window time.Duration) (key string, ends time.Duration) {
	at := now()
	return fmt.Sprintf("%s%d", prefix, at/int64(window)), window - time.Duration(at%int64(window))
}

// compute is a turn with a key that all want: one computes it, and all get the same value.
func (w *worker) compute(ctx context.Context, t *task) {
	key, ends := currentKey("do", 250*time.Millisecond)
	pause := t.nap(20 * time.Millisecond)
	if t.r.IntN(20) == 0 {
		pause = w.TTL + t.nap(w.TTL)
	}
	runs := 0
	from := now()
	r, err := w.flight.Do(ctx, key, func(ctx context.Context) ([]byte, error) {
		runs++
		sleep(ctx, pause)
		return fmt.Appendf(nil, "%s run %d", t.unique(), runs), ctx.Err()
	}, flight.DoOptions{})
	e := event{Kind: got, By: t.by, Name: key, Value: string(r.Value), From: from, To: now()}
	if err != nil {
		e.Kind, e.Error = gaveUp, err.Error()
		if !errors.Is(err, kvlock.ErrUnavailable) && !errors.Is(err, flight.ErrFailed) && !errors.Is(err, kvlock.ErrLost) {
			e.Kind = failed
		}
	}
	w.say(e)
	sleep(ctx, ends)
}

// claim is a turn with a key that each wants to claim and complete with its own value. Every other time it is
// late: another worker may have claimed the key by then.
func (w *worker) claim(ctx context.Context, t *task) {
	key, _ := currentKey("claim", 2*w.TTL)
	defer sleep(ctx, 50*time.Millisecond)
	c, err := w.flight.Begin(ctx, key, flight.BeginOptions{})
	if err != nil {
		return // another worker has it, or no server answers
	}
	late := t.nap(20 * time.Millisecond)
	if t.r.IntN(2) == 0 {
		late += w.TTL + w.TTL/3
	}
	sleep(ctx, late)
	for range 2 { // the second time to be refused, or to find out what the first did not
		e := event{By: t.by, Lease: c.ID(), Name: key, Token: c.Token(), Value: t.unique()}
		from := now()
		_, err = c.Complete(ctx, []byte(e.Value), 0)
		switch {
		case err == nil:
			e.Answer = accepted
		case errors.Is(err, kvlock.ErrLost):
			e.Answer = refused
		default:
			e.Answer, e.Error = unknown, err.Error()
		}
		w.tell(e, completed, from, now())
	}
}

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
