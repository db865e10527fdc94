package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

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

// claim is a turn with a key that each wants to claim and complete with a value of its own. Every other time it is
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
