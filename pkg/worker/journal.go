package worker

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// HeaderResume is the header of a job that goes on where another ended: its steps (package
// step) are those of the job that the header names. Replays of dead letters carry it, see
// [DeadLetter.Resume].
const HeaderResume = "Job-Resume"

// Resume returns the value of [HeaderResume] with which a replay of the letter's job runs
// no step again whose result is recorded. It works for as long as the steps are kept
// (Config.StepTTL), within the same stream and consumer; later the job starts over.
func (l DeadLetter) Resume() string {
	if key := nats.Header(l.Header).Get(HeaderResume); journal.ValidKey(key) {
		return key // it was a replay itself
	}

	return journal.Key(l.Sequence, l.EnqueuedAt)
}

// openJournal returns the journal of d's steps. lost ends the handler's context.
func (w *Worker) openJournal(d *delivery, lost context.CancelCauseFunc) *journal.Journal {
	resume := d.msg.Header.Get(HeaderResume)
	if !journal.ValidKey(resume) {
		resume = ""
	}

	return w.journals.Open(w.settling, journal.Attempt{
		Consumer: d.info.Consumer, Created: w.classOf(d.info.Consumer).created.Load(), Deliveries: d.first, Job: d.info.ID,
		Lost: lost, Resume: resume,
		Sequence: d.info.Sequence, Stored: d.info.EnqueuedAt, Stream: d.info.Stream, Unsure: !w.isFirst(d),
	})
}

// fenced returns why the job is another attempt's, or nil.
func (d *delivery) fenced() error {
	if d.journal == nil {
		return nil
	}

	return d.journal.Fenced()
}

// leave lets go of a job that another attempt has taken over: nothing is said to the server
// that could settle it or start it once more. Only when its newest delivery came to this
// worker after all, which holds it, it is given back.
func (w *Worker) leave(d *delivery, v verdict) Outcome {
	d.last = 0 // the mark is the successor's

	if w.table.copied(d) {
		return w.release(d, v)
	}

	w.table.release(d)

	return v.outcome
}
