package flight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// DoMany is [Flight.Do] for many keys: it returns their values, in the order of keys. They come from the bucket, from
// calls that compute them already, and from one call of fn for all other keys. Each key has all the guarantees that Do
// gives it, and callers of Do and of DoMany share their computations.
//
// fn is given the keys that this call claimed, and returns a value for each. Each key has its own result: a [KeysError]
// counts for the keys in it, any other error for the keys without a value; a key without a value and an error gets
// [ErrNoValue]; a key that fn was not given is ignored. The context of fn ends when no caller waits for any of these
// keys any more, or all their claims are lost. fn computes its keys before DoMany waits for other processes, so that
// two calls with the same keys never wait for each other. When the owner of another key dies, or gives its claim back,
// fn is called again for that key, maybe at the same time; it is also called again for a value that DoOptions.Refresh
// or Stale has computed anew.
//
// When some keys failed, the error is a KeysError with a reason for each, and the results of the other keys are valid;
// the result of a failed key has only its Key set. Any other error is of the call as a whole.
//
// One round trip for each 512 keys that are cached, and none for those in memory. Claims, and then values, are written at
// the same time for all keys.
func (f *Flight) DoMany(
	ctx context.Context, keys []string, fn func(ctx context.Context, missing []string) (map[string][]byte, error), opts DoOptions,
) ([]Result, error) {
	start := time.Now()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("kvlock: do %d keys: %w", len(keys), err)
	}
	b := newBatch(ctx, f, fn)
	defer b.leave()
	missing := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return b.remembers(key, opts) })
	slots, err := f.GetMany(ctx, missing)
	switch {
	case errors.Is(err, kvlock.ErrVersion):
		slots, err = nil, nil // of one key, or some: claiming tells which
	case err != nil && (!opts.FailOpen || !errors.Is(err, kvlock.ErrUnavailable)):
		return nil, err
	}
	if slots == nil {
		slots = make([]Slot, len(missing))
	}
	for i, key := range missing {
		slots[i].Key = key
		b.add(ctx, slots[i], err, opts)
	}
	b.added()
	return b.outcomes(ctx, keys, start)
}

// batch is one call of DoMany: its keys, each with a computation as Do has it, and the one call of the function for all
// that were claimed. A computation that is ready for the function waits until each other one of the batch is ready too,
// waits for another process, or has ended. None of that takes longer than an operation: a batch holds no claim while it
// waits for another process, so that two batches never wait for each other.
type batch struct {
	base    context.Context //nolint:containedctx // its values are the function's
	flight  *Flight
	fn      func(context.Context, []string) (map[string][]byte, error)
	members map[string]*member

	mu      sync.Mutex
	claimed []claimed
	open    int // keys that may still be claimed, and one while keys are being added

	done   chan struct{} // closed when the function has returned, with
	values map[string][]byte
	err    error
}

// member is a key of a batch.
type member struct {
	batch   *batch
	at      int // among the keys
	key     string
	settled bool // guarded by batch.mu

	call   *call // nil when the result is known without one
	joined bool  // the call is another caller's
	told   bool  // the result is known, and was emitted
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

// remembers reports whether the key's result is in the memory of this process, and takes it from there.
func (b *batch) remembers(key string, opts DoOptions) bool {
	var result Result
	ok := b.flight.remembered(key, &opts, &result)
	if ok && b.members[key] == nil {
		b.members[key] = &member{batch: b, key: key, settled: true, result: result}
	}
	return ok
}

// add starts or joins the computation of the slot's key, unless slot is a result. err is the reason why the slot could
// not be read.
func (b *batch) add(ctx context.Context, slot Slot, err error, opts DoOptions) {
	if b.members[slot.Key] != nil {
		return
	}
	m := &member{batch: b, at: len(b.members), key: slot.Key}
	b.members[m.key] = m
	t := &task{key: m.key, fn: m.compute, opts: opts, leaves: func() { b.settle(claimed{member: m}) }}
	d := &decision{task: t, flight: b.flight, slot: &slot, err: err}
	if err == nil && (slot.State == Failed || slot.hasValue() && !slot.Stale()) {
		m.settled = true
		d.waits(ctx) // it does not
		m.result, m.err = d.result, d.err
		return
	}
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	m.call, m.joined, m.err = b.flight.join(ctx, t, func(context.Context) *decision { return d })
	if m.call == nil || m.joined {
		b.settle(claimed{member: m})
	}
}

// added records that there are no more keys.
func (b *batch) added() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close()
}

// settle records that a key is ready for the function, with the context of its claim, or, without a context, that it
// will not be part of this call. It reports whether that was still open.
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

// close counts down open, and starts the function at 0. The caller holds mu.
func (b *batch) close() {
	b.open--
	if b.open == 0 && len(b.claimed) > 0 {
		b.flight.work.Go(b.run) // the work of those that were claimed has not ended
	}
}

// run calls the function for the claimed keys. Its context ends when those of all claims have.
func (b *batch) run() {
	defer close(b.done)
	slices.SortFunc(b.claimed, func(x, y claimed) int { return x.at - y.at })
	keys := make([]string, len(b.claimed))
	within := nested(b.base)
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

// compute is the function for one key: a part of the one call, or a call of its own when that call was made without the
// key.
func (m *member) compute(ctx context.Context) ([]byte, error) {
	if !m.batch.settle(claimed{member: m, ctx: ctx}) {
		return m.value(m.batch.fn(ctx, []string{m.key}))
	}
	<-m.batch.done
	return m.value(m.batch.values, m.batch.err)
}

// value returns the function's result for the key.
func (m *member) value(values map[string][]byte, err error) ([]byte, error) {
	value, err := pick(m.key, values, err)
	if p, ok := errors.AsType[*PanicError](err); ok && p.Key == "" {
		return nil, &PanicError{Key: m.key, Value: p.Value, Stack: p.Stack}
	}
	return value, err
}

// pick returns the result for one key of a function that was called for many.
func pick(key string, values map[string][]byte, err error) ([]byte, error) {
	value, found := values[key]
	errs, each := errors.AsType[KeysError](err)
	if each {
		err = errs[key]
	}
	switch {
	case found && (err == nil || !each):
		return value, nil
	case err != nil:
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %q", ErrNoValue, key)
	}
}

// outcomes waits for the results of the keys, in a call that began at start.
func (b *batch) outcomes(ctx context.Context, keys []string, start time.Time) ([]Result, error) {
	errs := KeysError{}
	results := make([]Result, len(keys))
	for i, key := range keys {
		m := b.members[key]
		if m.call != nil && !m.told {
			m.err = b.flight.outcome(ctx, m.call, m.joined, &m.result)
		}
		if !m.told {
			m.told, m.result.Key = true, key
			m.err = b.flight.returned(ctx, start, &m.result, m.err)
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

// leave ends the computations that no other caller waits for.
func (b *batch) leave() {
	for _, m := range b.members {
		if m.call != nil {
			b.flight.leave(b.base, m.call)
		}
	}
}

// errNoMemory is the error of Warm without a memory.
var errNoMemory = errors.New("kvlock: Config.Memory is off: there is nothing to warm")

// Warm loads the results and failures that the bucket holds under prefix, as [Flight.List] understands it, into memory,
// and returns how many it read. If they do not all fit, some are evicted. To load known keys, use [Flight.GetMany]; to
// compute missing values, use Do.
//
// Each record under prefix is read twice: once to find the keys, and once, 512 at a time, to know as of which sequence
// it holds.
func (f *Flight) Warm(ctx context.Context, prefix string) (n int, err error) {
	if f.memory == nil {
		return 0, errNoMemory
	}
	keys := make([]string, 0, kv.MaxRead)
	load := func() error {
		slots, err := f.GetMany(ctx, keys)
		for _, slot := range slots {
			if slot.State == Done || slot.State == Failed {
				n++
			}
		}
		keys = keys[:0]
		return err
	}
	for slot, err := range f.List(ctx, prefix) {
		switch {
		case slot.Key == "" && err != nil:
			return n, err
		case err != nil || slot.State == Pending:
			continue
		}
		if keys = append(keys, slot.Key); len(keys) == cap(keys) {
			if err := load(); err != nil {
				return n, err
			}
		}
	}
	return n, load()
}
