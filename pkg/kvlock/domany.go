package kvlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// DoMany is [Flight.Do] for many keys: it returns their values, in the order of keys, from the bucket, from one call of fn for
// all that nobody has or computes, and from whoever computes the others already. Each key has all the guarantees that
// Do gives it, and callers of Do and of DoMany share what they compute.
//
// fn is given the keys that this call claimed, and returns a value for each. What it returns counts for each key alone:
// an error of [KeysError] for the keys in it; any other error for the keys without a value; a key without either has
// [ErrNoValue]; a key that was not asked for is ignored. Its context ends when nobody waits for any of these keys, or all their
// claims are lost. It computes what it was asked for before anything else is waited for, so that two calls with the same
// keys never wait for each other. When somebody else's claim turns out to be dead, or is given back, fn is called again
// for that key, maybe at the same time; and so it is for a value that DoOptions.Refresh or Stale has computed anew.
//
// When some keys failed, the error is a KeysError with a reason for each, and the results of the other keys are good; the
// result of a key that failed has nothing but Key. Any other error is of the call as a whole.
//
// One round trip for each 512 keys that are cached, and none for those in memory. Claims, and then values, are written at
// the same time for all keys.
func (f *Flight) DoMany(
	ctx context.Context, keys []string, fn func(ctx context.Context, missing []string) (map[string][]byte, error), opts DoOptions,
) ([]Result, error) {
	return f.doMany(ctx, keys, fn, opts, nil)
}

// doMany is DoMany with an Options.Job for each key.
func (f *Flight) doMany(
	ctx context.Context, keys []string, fn func(ctx context.Context, missing []string) (map[string][]byte, error), opts DoOptions,
	jobs map[string]string,
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
	case errors.Is(err, ErrVersion):
		slots, err = nil, nil // of one key, or some: claiming tells which
	case err != nil && (!opts.FailOpen || !errors.Is(err, ErrUnavailable)):
		return nil, err
	}
	if slots == nil {
		slots = make([]Slot, len(missing))
	}
	for i, key := range missing {
		slots[i].Key = key
		if jobs != nil {
			opts.Job = jobs[key]
		}
		b.add(ctx, slots[i], err, opts)
	}
	b.added()
	return b.outcomes(ctx, keys, start)
}
