package kvlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// batch is one call of DoMany: its keys, each with a computation as Do has it, and the one call of the function for all
// that were claimed. A computation that gets to the function waits until all others of the batch have got there too, or
// wait for somebody else, or have ended. None of that takes longer than an operation: no claim is held while another
// process is waited for, so that two batches never wait for each other.
type batch struct {
	base    context.Context //nolint:containedctx // its values are the function's
	flight  *Flight
	fn      func(context.Context, []string) (map[string][]byte, error)
	members map[string]*member

	mu      sync.Mutex
	claimed []claimed
	open    int // keys that may still be claimed, and one while keys are being added

	done   chan struct{} // closed when the function has returned what follows
	values map[string][]byte
	err    error
}

// member is a key of a batch.
type member struct {
	batch   *batch
	at      int // among the keys
	key     string
	settled bool // guarded by batch.mu

	call   *call // nil when what follows is known without one
	joined bool  // the call is another caller's
	told   bool  // what follows is known, and the observer was told
	result Result
	err    error
}

// claimed is a member of which the function is to compute the value, until ctx ends.
type claimed struct {
	*member

	ctx context.Context //nolint:containedctx // of the claim
}

func newBatch(ctx context.Context, f *Flight, fn func(context.Context, []string) (map[string][]byte, error)) *batch {
	return &batch{
		base: context.WithoutCancel(ctx), flight: f, fn: fn, members: map[string]*member{}, open: 1, done: make(chan struct{}),
	}
}

// remembers says whether the key's result is in the memory of this process.
func (b *batch) remembers(key string, opts DoOptions) bool {
	result, ok := b.flight.remembered(key, opts)
	if ok && b.members[key] == nil {
		b.members[key] = &member{batch: b, key: key, settled: true, result: result}
	}
	return ok
}

// add starts or joins the computation of the key that slot is of, unless slot is a result. err says why it could not be
// read.
func (b *batch) add(ctx context.Context, slot Slot, err error, opts DoOptions) {
	if b.members[slot.Key] != nil {
		return
	}
	m := &member{batch: b, at: len(b.members), key: slot.Key}
	b.members[m.key] = m
	t := task{key: m.key, fn: m.compute, opts: opts, waits: func() { b.settle(claimed{member: m}) }}
	if err == nil && (slot.State == Failed || slot.hasValue() && !slot.Stale()) {
		m.settled = true
		m.result, m.err = b.flight.deciding(&t, &slot, nil).run(ctx)
		return
	}
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	m.call, m.joined, m.err = b.flight.join(ctx, m.key, opts, func(ctx context.Context) (Result, error) {
		defer b.settle(claimed{member: m})
		return b.flight.deciding(&t, &slot, err).run(ctx)
	})
	if opts.NoWait && errors.Is(m.err, ErrTaken) {
		m.result, m.err = b.flight.meanwhile(ctx, t, m.err)
	}
	if m.call == nil || m.joined {
		b.settle(claimed{member: m})
	}
}

// added says that there are no more keys.
func (b *batch) added() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close()
}

// settle says that a key has come to the function, with the context of its claim, or, without one, that it will not come
// now. It returns false when that was settled before.
func (b *batch) settle(c claimed) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.settled {
		return false
	}
	c.settled = true
	if c.ctx != nil {
		b.claimed = append(b.claimed, c)
	}
	b.close()
	return true
}

// close takes one from open, under mu, and starts the function when none is left.
func (b *batch) close() {
	b.open--
	if b.open == 0 && len(b.claimed) > 0 {
		b.flight.work.Go(b.run) // the work of those that were claimed has not ended
	}
}

// run calls the function for what was claimed. Its context ends when that of every claim has.
func (b *batch) run() {
	defer close(b.done)
	slices.SortFunc(b.claimed, func(x, y claimed) int { return x.at - y.at })
	keys := make([]string, len(b.claimed))
	within, _ := b.base.Value(callKey{}).(*nesting)
	for i, c := range b.claimed {
		keys[i] = c.key
		within = &nesting{call: c.call, outer: within}
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(b.base, callKey{}, within))
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(len(keys)))
	for _, c := range b.claimed { // it ends soon after the function, and this with it
		context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(c.ctx))
			}
		})
	}
	_, b.err = protect(ctx, "", func(ctx context.Context) (_ []byte, err error) {
		b.values, err = b.fn(ctx, keys)
		return nil, err
	})
}

// compute is the function for one key: a part of the one call, or a call of its own when that was made without it.
func (m *member) compute(ctx context.Context) ([]byte, error) {
	if !m.batch.settle(claimed{member: m, ctx: ctx}) {
		return m.value(m.batch.fn(ctx, []string{m.key}))
	}
	<-m.batch.done
	return m.value(m.batch.values, m.batch.err)
}

// value is what the function returned for the key.
func (m *member) value(values map[string][]byte, err error) ([]byte, error) {
	value, err := pick(m.key, values, err)
	if p, ok := errors.AsType[*PanicError](err); ok && p.Key == "" {
		return nil, &PanicError{Key: m.key, Value: p.Value, Stack: p.Stack}
	}
	return value, err
}

// pick is what a function that was called for many keys returned for one of them.
func pick[V any](key string, values map[string]V, err error) (V, error) {
	value, found := values[key]
	var none V
	errs, each := errors.AsType[KeysError](err)
	if each {
		err = errs[key]
	}
	switch {
	case found && (err == nil || !each):
		return value, nil
	case err != nil:
		return none, err
	default:
		return none, fmt.Errorf("%w: %q", ErrNoValue, key)
	}
}

// outcomes waits for what comes of the keys, in a call that began at start.
func (b *batch) outcomes(ctx context.Context, keys []string, start time.Time) ([]Result, error) {
	errs := KeysError{}
	results := make([]Result, len(keys))
	for i, key := range keys {
		m := b.members[key]
		if m.call != nil && !m.told {
			m.result, m.err = b.flight.outcome(ctx, m.call, m.joined)
		}
		if !m.told {
			m.told, m.result.Key = true, key
			m.result, m.err = b.flight.returned(ctx, start, m.result, m.err)
		}
		results[i], results[i].Key = m.result, key
		if m.err != nil {
			errs[key] = m.err
		}
	}
	if len(errs) > 0 {
		return results, errs
	}
	return results, nil
}

// leave ends the computations that nobody else waits for.
func (b *batch) leave() {
	for _, m := range b.members {
		if m.call != nil {
			b.flight.leave(m.call)
		}
	}
}
