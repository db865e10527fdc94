package kvlock

import (
	"context"
	"time"
)

// turn waits until the server may be asked, and returns what to take an element from after that. With a lease in hand
// there is no time to wait behind all who want one.
func (g *gate) turn() chan struct{} {
	g.mu.Lock()
	turns := g.locker.turns
	if g.lease != nil {
		turns = g.locker.holders
	}
	select {
	case turns <- struct{}{}:
		g.mu.Unlock()
	default:
		g.inLine = true
		g.mu.Unlock()
		turns <- struct{}{}
	}
	return turns
}

// transaction is a write that is computed and not yet settled.
type transaction struct {
	do     action
	change change
	next   *lockRecord // nil: the lock is free
	taker  *waiter     // who gets the lease if it is ours
	over   string      // the instance that it is taken over from
	lease  *Lease      // the one in hand when it was computed
	mine   bool        // what it replaces was this member's
	data   []byte      // of the message
	began  time.Time   // before it was sent first
	err    error       // it cannot be sent

	revision uint64
}

func (g *gate) send(t *transaction) error {
	if t.err != nil {
		return t.err
	}
	t.began = time.Now()
	var err error
	if t.revision, err = g.locker.try(context.Background(), t.change, t.data, g.locker.opTimeout); err != nil { //nolint:forbidigo // bound
		return g.insist(t, err, t.began)
	}
	return nil
}

// insist is the rest of send, after a try that ended with the error last. Its time counts from since.
func (g *gate) insist(t *transaction, last error, since time.Time) (err error) {
	ctx, cancel := g.locker.boundBy(context.Background(), since.Add(g.locker.opTimeout)) //nolint:forbidigo // bound by the store
	defer cancel()
	t.revision, _, err = g.locker.insist(ctx, t.change, t.data, t.began, last)
	return err
}

// serve is run by a caller that has begun to work: for what it wants itself, there is no goroutine to be woken, nor to
// be woken by. It sends one write at most, and waits for that no longer than ctx and bound let it. All else is left to a
// goroutine that is hired for it.
func (g *gate) serve(ctx context.Context, bound time.Duration) {
	g.locker.work.Add(1)
	defer g.locker.work.Done()
	if !g.follow() {
		return
	}
	var t *transaction
	if ctx.Err() == nil {
		t = g.first()
	}
	if t == nil {
		g.hire(g.run)
		return
	}
	t.began = time.Now()
	var err error
	if t.revision, err = g.locker.try(ctx, t.change, t.data, bound); err != nil {
		g.hire(func() {
			g.settle(t, g.insist(t, err, time.Now()))
			<-g.locker.turns
			g.run()
		})
		return
	}
	g.settle(t, nil)
	<-g.locker.turns
	if g.rests() {
		g.locker.rest(g)
	} else {
		g.hire(g.run)
	}
}

// first is the write that is to be sent now, if one is and may be: it is this gate's turn then.
func (g *gate) first() *transaction {
	select {
	case g.locker.turns <- struct{}{}:
	default:
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if do, w, _ := g.decide(now); len(g.notes) == 0 && do != nothing && do != look {
		if t := g.compose(do, w, now); t.err == nil {
			return t
		}
	}
	<-g.locker.turns
	return nil
}

// lookAt reads the record, of which revision at is known, from the stream's leader.
func (g *gate) lookAt(at uint64) {
	began := time.Now()
	slot, err := g.locker.ask(context.Background(), g.name) //nolint:forbidigo // bound by the store
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.failed(err)
		return
	}
	g.looked = began
	g.found(slot, at)
}
