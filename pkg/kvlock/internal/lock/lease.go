package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Package kvlock publishes and explains these.
var (
	ErrLost     = errors.New("kvlock: claim lost")
	ErrReleased = errors.New("kvlock: lock released")
)

// Lease is a lock that this process holds, until Release or until it is lost. Its agent renews it every third of its
// TTL.
type Lease struct {
	agent      *agent
	id         string
	metadata   map[string]string
	ttl        time.Duration
	taken      time.Time
	takenAt    uint64 // the revision at which it was taken
	generation uint64 // of the bucket, then

	ctx    context.Context
	cancel context.CancelCauseFunc

	// The fields below are guarded by agent.mu.
	deadline  time.Time // the time until which no other member can have the lock, on the monotonic clock
	renewAt   time.Time
	timer     *time.Timer   // ends the lease at its deadline
	releasing bool          // Release was called, or the Agents close
	done      chan struct{} // closed when the lease is over, with
	err       error
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.agent.name }

// Token returns the generation of the bucket and the revision at which the lock was taken.
func (l *Lease) Token() (generation, revision uint64) { return l.generation, l.takenAt }

// Context ends when the lease does, on time: see kvlock.Lease.
func (l *Lease) Context() context.Context { return kv.DeadlineContext(l.ctx, l.endInTime) }

// endInTime ends the lease when its deadline has passed and its timer has not run yet.
func (l *Lease) endInTime() {
	l.agent.mu.Lock()
	over := !time.Now().Before(l.deadline)
	l.agent.mu.Unlock()
	if over {
		l.expire()
	}
}

// Release gives the lock up: see kvlock.Lease.
func (l *Lease) Release(ctx context.Context) error {
	opTimeout := l.agent.agents.cfg.OpTimeout
	by := time.Now().Add(opTimeout)
	l.agent.mu.Lock()
	serves := false
	if l.ctx.Err() == nil {
		l.release(ErrReleased)
		serves = l.agent.begin()
	}
	l.agent.mu.Unlock()
	if serves {
		l.agent.serve(ctx, opTimeout)
	}

	if err := l.ended(ctx, by); err != nil {
		return err
	}
	if l.err != nil {
		return fmt.Errorf("kvlock: release %q: %w", l.agent.name, l.err)
	}
	return nil
}

// ended waits until the lease is over.
func (l *Lease) ended(ctx context.Context, by time.Time) error {
	select {
	case <-l.done:
		return nil
	default:
	}
	ctx, cancel := context.WithDeadlineCause(ctx, by, kv.ErrUnavailable)
	defer cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kvlock: release %q: %w", l.agent.name, context.Cause(ctx))
	}
}

// release ends the context; the worker then gives the lock up. The caller holds the agent's mu.
func (l *Lease) release(cause error) {
	l.cancel(cause)
	l.releasing = true
	if enough := kv.Deadline(time.Now(), l.ttl); l.deadline.Before(enough) {
		l.deadline = enough // the holder has stopped: the deadline now only bounds the tries to give the lock up
	}
}

// extend renews the lease by an acknowledged write that was sent at the time sent.
func (l *Lease) extend(sent time.Time) {
	l.deadline, l.renewAt = kv.Deadline(sent, l.ttl), sent.Add(l.ttl/3)
}

// expire ends the lease when another member may have the lock. It shares no lock with a write under way, so it is on time when the write
// hangs.
func (l *Lease) expire() {
	a := l.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease != l {
		return
	}
	if left := time.Until(l.deadline); left > 0 {
		l.timer.Reset(left)
		return
	}
	if l.releasing {
		a.end(l, errors.Join(kv.ErrUnavailable, a.failure))
	} else {
		a.lose(l, fmt.Errorf("%w: lock %q: no renewal was acknowledged in time", ErrLost, a.name))
	}
	a.start()
}
