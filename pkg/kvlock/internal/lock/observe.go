package lock

import (
	"context"
	"fmt"
	"sync"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// observer has the last state of a lock that the hub delivered.
type observer struct {
	ready chan struct{} // has an element when there is a new state, or when the hub has ended

	mu    sync.Mutex
	state *State
}

// Deliver takes a state of the lock from the hub.
func (o *observer) Deliver(value any, _ bool) {
	s := value.(*State) //nolint:forcetypeassert // view makes nothing else
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

func (o *observer) last() *State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Observe calls yield with the state of a lock, and with each later state in which another lease holds the lock, the lease is confirmed,
// or the lock is free. An error comes last.
func (a *Agents) Observe(ctx context.Context, name string, yield func(State, error) bool) {
	err := CheckName(name)
	o := &observer{ready: make(chan struct{}, 1)}
	watch := kv.Watch{Keys: []string{keyOf(name)}, To: o}
	if err == nil {
		err = a.store.Hub.Add(&watch)
	}
	if err != nil {
		yield(State{}, fmt.Errorf("kvlock: observe %q: %w", name, err))
		return
	}
	defer a.store.Hub.Remove(&watch)
	var shown *State
	for err == nil {
		select {
		case <-o.ready:
			err = a.store.Hub.Over()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		s := o.last()
		if err == nil && s != nil {
			err = s.Err
		}
		switch {
		case err != nil:
			yield(State{}, fmt.Errorf("kvlock: observe %q: %w", name, err))
		case s == nil, shown != nil && s.Record.isHeldAs(shown.Record):
		case !yield(*s, nil):
			return
		default:
			shown = s
		}
	}
}

// isHeldAs reports whether two records of a lock have the same holder and lease. Renewals and the queue may differ.
func (r *Record) isHeldAs(other *Record) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Lease == other.Lease && r.Granted == other.Granted
}
