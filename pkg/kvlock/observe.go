package kvlock

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// observer has the last state of a lock that the hub delivered.
type observer struct {
	ready chan struct{} // has an element when there is a new state, or when the hub has ended

	mu    sync.Mutex
	state *state
}

// Deliver takes a state of the lock from the hub.
func (o *observer) Deliver(value any, _ bool) {
	s := value.(*state) //nolint:forcetypeassert // view makes nothing else
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == nil || s.follows(o.state) {
		o.state = s
		o.Wake()
	}
}

// Knows reports whether a state was delivered.
func (o *observer) Knows(string) bool { return o.last() != nil }

// Wake makes Observe look.
func (o *observer) Wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *observer) last() *state {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Observe yields the present state of a lock, and its state again when another lease holds it, when a lease that was handed over is
// confirmed, and when the lock is free. So all members can know the leader, if the holder of the lock is the leader. The Metadata of a
// holder, its address for instance, are known when Granted is false. If the lock changes several times while the loop's body runs, the
// latest state is yielded.
//
// A state is a hint: it is pushed, or read within two seconds, and the lock may have changed since. A dead holder is yielded until another
// takes the lock, or for twice its TTL. An error, the cause of ctx for instance, comes last, with an empty lock. All observers of a Locker
// share one subscription.
func (l *Locker) Observe(ctx context.Context, name string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		err := l.observe(ctx, name, yield)
		if err != nil {
			yield(Lock{}, fmt.Errorf("kvlock: observe %q: %w", name, err))
		}
	}
}

// observe calls yield for each state that Observe yields. It returns nil when yield has returned false.
func (l *Locker) observe(ctx context.Context, name string, yield func(Lock, error) bool) error {
	o := &observer{ready: make(chan struct{}, 1)}
	watch := kv.Watch{Keys: []string{keyOf(name)}, To: o}
	if err := checkName(name); err != nil {
		return err
	}
	if err := l.store.Hub.Add(&watch); err != nil {
		return err
	}
	defer l.store.Hub.Remove(&watch)
	var shown *state
	for {
		select {
		case <-o.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s := o.last()
		if err := l.store.Hub.Over(); err != nil {
			return err
		}
		switch {
		case s == nil:
		case s.err != nil:
			return s.err
		case shown != nil && s.record.isHeldAs(shown.record):
		case !yield(l.show(*s), nil):
			return nil
		default:
			shown = s
		}
	}
}

// isHeldAs reports whether two records of a lock have the same holder and lease. Renewals and the queue may differ.
func (r *record) isHeldAs(other *record) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Lease == other.Lease && r.Granted == other.Granted
}
