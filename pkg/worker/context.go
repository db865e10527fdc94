package worker

import (
	"context"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// attemptContext is the context of a handler. By it package step and the methods of Job find the delivery.
type attemptContext struct {
	context.Context //nolint:containedctx // it is one

	delivery *delivery
	worker   *Worker
}

type attemptKey struct{}

// Value implements context.Context.
func (c *attemptContext) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return c
	case journal.ContextKey:
		return c.journal()
	default:
		return c.Context.Value(key)
	}
}

// journal returns the journal of the job's steps, which is opened for the first of them. After the attempt it takes no more.
func (c *attemptContext) journal() *journal.Journal {
	d := c.delivery
	d.opening.Do(func() { d.journal = c.worker.openJournal(d) })
	if d.journal != nil {
		return d.journal
	}
	ended := c.worker.openJournal(d)
	ended.Close()
	return ended
}

// endSteps ends the attempt for its journal, if it has one.
func (d *delivery) endSteps() {
	d.opening.Do(func() {})
	if d.journal != nil {
		d.journal.Close()
	}
}

// openJournal returns the journal of d's steps, which ends the handler's context when the job is another attempt's.
func (w *Worker) openJournal(d *delivery) *journal.Journal {
	resume := d.msg.Header.Get(HeaderResume)
	if resume != "" && !journal.ValidKey(resume) {
		resume = ""
	}
	return w.journals.Open(w.settling, journal.Attempt{
		Check:    func(ctx context.Context) (bool, error) { return w.checkStep(ctx, d) },
		Consumer: d.info.Consumer, Created: d.created, Deliveries: d.first, Job: d.info.ID,
		Lost: d.cancel, Resume: resume,
		Sequence: d.info.Sequence, Stored: d.info.EnqueuedAt, Stream: d.info.Stream, Unsure: !w.isFirst(d),
	})
}

// Attempts that have a long timeout and do not wait share its end with those that begin at about the same time: a timer for each took a
// twentieth of the processor time of a client.
const (
	longTimeout = 10 * time.Minute
	windows     = 64 // in the length of a timeout, so that no more have timers
)

// window is a context for all attempts of a route that begin before it closes.
type window struct {
	mu     sync.Mutex
	closes time.Time
	shared context.Context    //nolint:containedctx // of many
	end    context.CancelFunc // not called: its time ends it, or the end of the run
}

// isShared reports whether the attempt at d shares its timeout with others.
func (d *delivery) isShared() bool {
	return d.policy.Timeout >= longTimeout && d.line == nil && len(d.policy.Limits) == 0
}

// parentOf returns the parent of the context of the attempt at d.
func (w *Worker) parentOf(d *delivery) context.Context {
	if !d.isShared() {
		return w.jobs
	}
	now, s, timeout := time.Now(), &d.route.window, d.policy.Timeout
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.closes) {
		s.closes = now.Add(timeout / windows)
		s.shared, s.end = context.WithDeadlineCause(w.jobs, s.closes.Add(timeout), &TimeoutError{Timeout: timeout})
	}
	return s.shared
}
