package worker

import (
	"context"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// attemptContext is the context of a handler. By it package step and the methods of Job find the delivery.
type attemptContext struct {
	context.Context

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
