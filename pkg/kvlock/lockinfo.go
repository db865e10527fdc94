package kvlock

import (
	"context"
	"iter"
	"time"
)

// Lock is what one read showed of a lock, for people who look. It is a hint: by the time it is looked at the lock may
// have moved on.
type Lock struct {
	Name     string
	Held     bool              // by somebody who, if dead, was seen alive less than twice its TTL ago
	Granted  bool              // handed over to Holder, who may hold it already and has not confirmed it yet
	Holder   string            // the instance that holds it
	Lease    string            // the id of the lease
	Metadata map[string]string // what the holder said of itself; not written to
	Since    time.Time         // when it was taken, by the holder's clock
	Stolen   string            // the instance that it was taken from by force, if it was
	Token    Token
	TTL      time.Duration
	Queue    []Waiting // who waits, the next first

	Revision uint64    // of the record
	Written  time.Time // when the server stored the record
}

// Waiting is a number of waiters that follow each other in the queue of a lock and belong to one instance.
type Waiting struct {
	Instance string
	Waiters  int
}

// Age is for how long the lock has been held, never negative. It compares the holder's clock with this process's.
func (l Lock) Age() time.Duration {
	if !l.Held {
		return 0
	}
	return max(0, time.Since(l.Since))
}

// show is what people are told of a record, which slot holds.
func (l *lockRecord) show(epoch uint64, slot Slot) Lock {
	lock := Lock{Name: slot.Key, Revision: slot.Revision, Written: slot.Created}
	if l == nil {
		return lock
	}
	lock.Held, lock.Granted, lock.Holder, lock.Lease = true, l.Granted, l.instance, l.lease
	lock.Metadata, lock.Stolen, lock.TTL = l.Metadata, l.Stolen, l.ttl
	lock.Since = time.UnixMilli(l.Since)
	lock.Token = Token{Epoch: epoch, Revision: l.token(slot.Revision)}
	for _, r := range l.queue {
		lock.Queue = append(lock.Queue, Waiting{Instance: r.instance, Waiters: r.places})
	}
	return lock
}

// Inspect says who holds a lock, since when, and who waits for it. One round trip.
func (l *Locker) Inspect(ctx context.Context, name string) (Lock, error) {
	if err := checkKey(name); err != nil {
		return Lock{}, err
	}
	slot, err := l.ask(ctx, name)
	if err != nil {
		return Lock{}, err
	}
	return slot.lock.show(l.epoch.Load(), slot), nil
}

// List yields the locks whose names begin with prefix and a dot, and all with the prefix "", that somebody holds: each as
// Inspect shows it, but possibly older, in the order in which they were last written.
//
// It goes over the keys as [Flight.List] does, and needs the same permission: 500 records are in memory at a time. A lock
// that is there all the time is yielded, and yielded again, later, when it is written meanwhile. A record that cannot be
// read is yielded with its name and the reason; an error with an empty lock is the last. The end of ctx ends it.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		for slot, err := range l.records(ctx, prefix) {
			switch {
			case slot.Key == "":
				yield(Lock{}, err)
				return
			case err == nil && slot.lock == nil: // it is free
			case !yield(slot.lock.show(l.epoch.Load(), slot), err):
				return
			}
		}
	}
}
