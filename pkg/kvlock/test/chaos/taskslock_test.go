package chaos_test

import (
	"context"
	"errors"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
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

// use takes a lock, writes what it guards, and gives it back.
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
		at := now() // before it looks: what is alive then was alive at that time, too
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
	_ = lease.Release(ctx) //nolint:errcheck // it is lost
}

// write changes what the lock guards.
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
