package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	ttl = time.Second // of locks and claims
)

// lockNames are the locks of a run, each with a value that it guards. The last is held for long, so that a fault hits a
// holder that renews, and those that wait for it.
var lockNames = []string{"gate", "till", "vault"}

// task is the work of a process.
type task struct {
	Effects, History, Name, URLs string

	Seed      uint64
	UntilLost bool // take the first lock and keep it until it is lost
}

// worker is a process that takes locks, writes guarded values, computes keys and claims keys, until it is stopped.
type worker struct {
	task

	effects, history *crash.Log
	flight           *flight.Flight
	guard            *kvlock.Guard
	locker           *kvlock.Locker
	memory           *flight.Flight // that only remember uses
}

var workers = crash.Role[task]{Name: "worker", Run: func(working context.Context, t task) error {
	w := &worker{task: t}
	nc, err := nats.Connect(w.URLs, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.IgnoreDiscoveredServers(), nats.Timeout(500*time.Millisecond), nats.PingInterval(500*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := w.open(context.WithoutCancel(working), nc); err != nil {
		return err
	}
	w.run(working)
	w.locker.Close()
	w.flight.Close()
	w.memory.Close()
	w.guard.Close()
	return nil
}}

// open opens the logs, and binds to the buckets, however long that takes: the process may be started while no server answers.
func (w *worker) open(ctx context.Context, nc *nats.Conn) (err error) {
	if w.effects, err = crash.OpenLog(w.Effects, w.Name); err != nil {
		return err
	}
	if w.history, err = crash.OpenLog(w.History, w.Name); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	for err = errors.New("not yet"); err != nil; {
		w.locker, err = kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: lockBucket, Instance: w.Name, Logger: quiet, TTL: ttl})
	}
	cfg := flight.Config{Bucket: resultBucket, ClaimTTL: ttl, Instance: w.Name, Logger: quiet}
	for err = errors.New("not yet"); err != nil; {
		w.flight, err = flight.New(ctx, js, cfg)
	}
	cfg.Memory.MaxBytes = 1 << 20
	for err = errors.New("not yet"); err != nil; {
		w.memory, err = flight.New(ctx, js, cfg)
	}
	for err = errors.New("not yet"); err != nil; {
		w.guard, err = kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: valueBucket, Instance: w.Name})
	}
	return nil
}

// run takes turns until working ends, and brings those to an end that have begun.
func (w *worker) run(working context.Context) {
	turns := []func(context.Context, *turn){w.keep, w.lock, w.lock, w.compute, w.compute, w.claim, w.contend, w.contend, w.remember}
	if w.UntilLost {
		turns = []func(context.Context, *turn){w.holdUntilLost}
	}
	var all sync.WaitGroup
	for i, take := range turns {
		t := &turn{by: fmt.Sprintf("%s.%d", w.Name, i), r: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
		all.Go(func() {
			for working.Err() == nil {
				t.n++
				take(working, t)
			}
		})
	}
	all.Wait()
}

// turn is the state of one goroutine of a worker.
type turn struct {
	by string
	n  int
	r  *rand.Rand
}

// unique returns a value that no other turn writes.
func (t *turn) unique() string { return fmt.Sprintf("%s/%d", t.by, t.n) }

func (t *turn) nap(upTo time.Duration) time.Duration { return time.Duration(t.r.Int64N(int64(upTo))) }

// lock is a turn with a lock that is wanted all the time.
func (w *worker) lock(ctx context.Context, t *turn) {
	if w.use(ctx, t, lockNames[t.r.IntN(len(lockNames)-1)], t.nap(5*time.Millisecond)) {
		w.turned(t)
	}
}

// keep is a turn with the lock that is held for long.
func (w *worker) keep(ctx context.Context, t *turn) {
	w.use(ctx, t, lockNames[len(lockNames)-1], ttl/2+t.nap(3*ttl/2))
}

// use takes a lock, writes the guarded value and releases the lock. It reports whether it got the lock.
func (w *worker) use(ctx context.Context, t *turn, name string, hold time.Duration) bool {
	wait := ctx
	if t.r.IntN(10) == 0 { // gives up, perhaps
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, t.nap(100*time.Millisecond))
		defer cancel()
	}
	lease, held := w.acquire(wait, t, name)
	if lease == nil {
		sleep(ctx, 10*time.Millisecond)
		return false
	}
	if lease.Context().Err() == nil { // or it was over before Acquire returned: the process was frozen in it
		w.tell(held, alive, held.To, held.To)
	}
	done := context.WithoutCancel(ctx)
	w.write(done, t, held, "first")
	for until := now() + int64(hold); w.isAlive(lease, held) && now() < until && ctx.Err() == nil; {
		sleep(lease.Context(), 2*time.Millisecond)
	}
	if t.r.IntN(4) == 0 { // a zombie: it writes though the lease is over, or about to be
		defer w.write(done, t, held, "late")
	}
	defer w.reportAlive(lease, held)()
	w.effect(crash.Recorded, name) // before another process may have it
	from := now()
	if err := lease.Release(done); err != nil {
		held.Error = err.Error()
	}
	w.tell(held, released, from, now())
	return true
}

// acquire takes a lock, and returns a nil lease when that failed.
func (w *worker) acquire(ctx context.Context, t *turn, name string) (*kvlock.Lease, event) {
	e := event{By: t.by, Name: name, From: now()}
	lease, err := w.locker.Acquire(ctx, name, kvlock.AcquireOptions{})
	e.To = now()
	if err != nil {
		e.Kind, e.Error = gaveUp, err.Error()
		if ctx.Err() == nil && !errors.Is(err, kvlock.ErrUnavailable) {
			e.Kind = failed
		}
		w.say(e)
		return nil, e
	}
	e.Kind, e.Lease, e.Token = acquired, t.unique(), lease.Token()
	w.say(e)
	w.effect(crash.Started, name)
	return lease, e
}

// isAlive reports whether the lease is alive, and writes down that it was when isAlive was called.
func (w *worker) isAlive(lease *kvlock.Lease, held event) bool {
	at := now() // before it looks: a lease that is alive then was alive at that time, too
	if lease.Context().Err() != nil {
		return false
	}
	w.tell(held, alive, at, at)
	return true
}

// reportAlive writes down all the time whether the lease is alive, until stop is called.
func (w *worker) reportAlive(lease *kvlock.Lease, held event) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for w.isAlive(lease, held) {
			select {
			case <-end:
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// holdUntilLost takes the first lock and looks at its context thousands of times a second, until the lease is lost.
func (w *worker) holdUntilLost(ctx context.Context, t *turn) {
	lease, held := w.acquire(ctx, t, lockNames[0])
	if lease == nil {
		return
	}
	for w.isAlive(lease, held) && ctx.Err() == nil {
		for at := now(); now()-at < int64(200*time.Microsecond); { //nolint:revive // it works
		}
	}
	_ = lease.Release(context.WithoutCancel(ctx)) // it is lost, as a rule
}

// write changes the value that the lock guards.
func (w *worker) write(ctx context.Context, t *turn, held event, which string) {
	held.Value = t.unique() + " " + which
	w.attempt(held, wrote, func() (answer, error) {
		err := w.guard.Put(ctx, held.Name, held.Token, []byte(held.Value))
		fenced, isFenced := errors.AsType[*kvlock.FencedError](err)
		return outcome(err, isFenced && !fenced.Unknown), err
	})
}

// outcome returns the answer for an error, which may be a refusal.
func outcome(err error, isRefusal bool) answer {
	switch {
	case err == nil:
		return accepted
	case isRefusal:
		return refused
	default:
		return unknown
	}
}

// attempt writes down that an operation begins, and its answer. If the process is killed in between, the answer stays unknown.
func (w *worker) attempt(e event, k kind, do func() (answer, error)) answer {
	e.Kind, e.Answer, e.From, e.To = k, unknown, now(), 0
	w.say(e)
	got, err := do()
	e.Answer, e.To = got, now()
	if err != nil {
		e.Error = err.Error()
	}
	w.say(e)
	return got
}

// currentKey is the key that all processes work on, for a window of time, without having to agree on it.
func currentKey(prefix string, window time.Duration) (key string, ends time.Duration) {
	at := now()
	return fmt.Sprintf("%s%d", prefix, at/int64(window)), window - time.Duration(at%int64(window))
}

// compute is a turn with a key that all want: one computes it, and all get the same value.
func (w *worker) compute(ctx context.Context, t *turn) {
	key, ends := currentKey("do", 250*time.Millisecond)
	pause := t.nap(20 * time.Millisecond)
	if t.r.IntN(20) == 0 {
		pause = ttl + t.nap(ttl)
	}
	runs := 0
	e := event{Kind: got, By: t.by, Name: key, From: now()}
	r, err := w.flight.Do(context.WithoutCancel(ctx), key, func(ctx context.Context) ([]byte, error) {
		runs++
		sleep(ctx, pause)
		return fmt.Appendf(nil, "%s run %d", t.unique(), runs), ctx.Err()
	}, flight.DoOptions{})
	e.To, e.Value = now(), string(r.Value)
	if err != nil {
		e.Kind, e.Error = gaveUp, err.Error()
		if !errors.Is(err, kvlock.ErrUnavailable) && !errors.Is(err, flight.ErrFailed) && !errors.Is(err, kvlock.ErrLost) {
			e.Kind = failed
		}
	}
	w.say(e)
	if err == nil {
		w.turned(t)
	}
	sleep(ctx, ends)
}

// claim is a turn with a key that each wants to claim and complete with its own value. Every other time it is
// late: another process may have claimed the key by then.
func (w *worker) claim(ctx context.Context, t *turn) {
	key, _ := currentKey("claim", 2*ttl)
	defer sleep(ctx, 50*time.Millisecond)
	done := context.WithoutCancel(ctx)
	c, err := w.flight.Begin(done, key, flight.BeginOptions{})
	if err != nil {
		return // another process has it, or no server answers
	}
	late := t.nap(20 * time.Millisecond)
	if t.r.IntN(2) == 0 {
		late += ttl + ttl/3
	}
	sleep(ctx, late)
	for i := range 2 { // the second time to be refused, or to find out what the first did not
		e := event{By: t.by, Lease: c.ID(), Name: key, Token: c.Token(), Value: fmt.Sprint(t.unique(), " ", i)}
		w.attempt(e, completed, func() (answer, error) {
			_, err := c.Complete(done, []byte(e.Value), 0)
			return outcome(err, errors.Is(err, kvlock.ErrLost)), err
		})
	}
}

// contend is a turn with a claim that does not expire within the run. All processes take it from each other.
func (w *worker) contend(ctx context.Context, t *turn) {
	key, ends := currentKey("contend", 500*time.Millisecond)
	done := context.WithoutCancel(ctx)
	seen, err := w.flight.Get(done, key)
	if err != nil || seen.State != flight.Absent {
		sleep(ctx, min(ends, t.nap(5*time.Millisecond)))
		return
	}
	e := event{By: t.by, Name: key, Value: t.unique()}
	var c *flight.Claim
	begun := w.attempt(e, began, func() (answer, error) {
		c, err = w.flight.Begin(done, key, flight.BeginOptions{Seen: seen, TTL: time.Hour})
		if errors.Is(err, flight.ErrTaken) {
			return nothing, nil // the entry in it was only read
		}
		return outcome(err, false), err
	})
	if begun != accepted {
		return
	}
	op := func(k kind, err func() error) answer {
		return w.attempt(e, k, func() (answer, error) {
			err := err()
			return outcome(err, errors.Is(err, kvlock.ErrLost)), err
		})
	}
	op(renewed, func() error { return c.Renew(done, time.Hour) })
	if t.r.IntN(20) == 0 {
		op(ended, func() error { _, err := c.Complete(done, []byte("v"), 0); return err })
		return
	}
	op(gaveBack, func() error { return c.Release(done) })
}

// remember is a turn with one of a few keys, which all processes replace now and then and read in between, mostly from memory.
func (w *worker) remember(ctx context.Context, t *turn) {
	defer sleep(ctx, 4*time.Millisecond)
	done := context.WithoutCancel(ctx)
	e := event{Kind: remembered, By: t.by, Name: fmt.Sprint("memory", t.r.IntN(8))}
	if t.r.IntN(50) > 0 {
		hits := w.memory.Stats().Memory.Hits
		e.From = now()
		if s, err := w.memory.Get(done, e.Name); err == nil && w.memory.Stats().Memory.Hits > hits {
			e.Token.Revision = s.Revision
			w.say(e)
		}
		return
	}
	if w.memory.Invalidate(done, e.Name) != nil {
		return
	}
	c, err := w.memory.Begin(done, e.Name, flight.BeginOptions{})
	if err != nil {
		return // another process has it, or no server answers
	}
	if s, err := c.Complete(done, []byte("v"), 0); err == nil {
		e.Kind, e.Token.Revision, e.To = replaced, s.Revision, now()
		w.say(e)
	}
}

func (w *worker) tell(e event, k kind, from, to int64) {
	e.Kind, e.From, e.To = k, from, to
	w.say(e)
}

// say writes an event down. It is in the file when say returns, even if the process is killed then.
func (w *worker) say(e event) {
	data, err := json.Marshal(e)
	if err == nil {
		err = w.history.Write("event", string(data))
	}
	if err != nil {
		panic(err)
	}
}

// effect writes to the effect log which locks the process has.
func (w *worker) effect(k crash.Kind, id string) {
	if err := w.effects.Write(k, id); err != nil {
		panic(err)
	}
}

// turned is the kind of an entry of the effect log for a goroutine that got a lock or a value.
const turned crash.Kind = "turned"

func (w *worker) turned(t *turn) { w.effect(turned, t.by) }

// now is the machine's clock in nanoseconds, as in the effect log: the same in every process.
func now() int64 { return time.Now().UnixNano() }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
