package worker

import (
	"fmt"
	"time"

	"github.com/expediter-io/expediter/internal/jsapi"
)

const (
	// firstLook and lastLook bound the wait between two looks for the end of a job that another worker has, or that waits for its retry. The
	// wait doubles from look to look while that job stays the first, so its end is seen after at most about twice its time.
	firstLook = 10 * time.Millisecond
	lastLook  = 2 * time.Second
)

// errDoubted is the reason that an ordered job may not run.
var errDoubted = &refusal{
	outcome{kind: OutcomeFenced}, "worker: heartbeats were not confirmed, so another worker may have been given the job",
}

// awaitOrder waits until all jobs of the subject before d have ended. A waiting job leaves its slot. No round trip in a worker that has
// been the only one of the consumer for a while, otherwise one for each look.
func (w *Worker) awaitOrder(d *delivery) error {
	s := &slot{delivery: d, worker: w}
	defer s.end()
	for wait, seen := firstLook, uint64(0); ; {
		if w.isTaken(d) { // all jobs of a line leave at once: if each left when its turn comes, each would wait for another AckWait
			return errDoubted
		}
		first, sure, from := w.lines.Look(d.line)
		if first {
			next, err := w.nextOf(d, sure, from)
			if err != nil {
				return err
			}
			if next == d.info.Sequence {
				w.lines.Start(d.line)
				return w.retake(s)
			}
			if next != seen { // jobs are ending: the next may end as soon
				wait, seen = firstLook, next
			}
		}
		if !s.parked && int(w.deliveries.parked.Load()) >= w.cfg.MaxWaiting {
			w.lines.SendBack(d.line)
		}
		if back := w.lines.SentBack(d.line); back > 0 {
			w.releaseSlot(d)
			return refused(OutcomeLimited, back, "worker: too many ordered jobs wait")
		}
		s.Give()
		var again <-chan time.Time // another worker's job ends without a sign
		if first {
			again, wait = time.After(wait), min(2*wait, lastLook)
		}
		select {
		case <-d.line.Turn:
			wait = firstLook
		case <-again:
		case <-w.stopping.Done():
			<-w.drained // as in acquireSlot
			return errNotStarted
		}
	}
}

// retake takes a slot for a job whose turn has come.
func (w *Worker) retake(s *slot) error {
	d := s.delivery
	if !d.hasSlot {
		if !w.slots.acquire(int(d.class.priority), w.stopping.Done(), 0) {
			<-w.drained
			return errNotStarted
		}
		s.parked, d.hasSlot = false, true
		w.deliveries.parked.Add(-1)
	}
	return nil
}

// nextOf returns the sequence of the first message of a job's subject: of the job itself, or of an earlier one. One
// round trip, to the stream's leader, unless sure is true: no other is before the job.
func (w *Worker) nextOf(d *delivery, sure bool, from uint64) (uint64, error) {
	if sure {
		return d.info.Sequence, nil
	}
	msg, found, err := w.api.Get(w.settling, d.info.Stream, jsapi.Query{NextBySubject: d.info.Subject, Sequence: from})
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || msg.Sequence > d.info.Sequence:
		return 0, errGone
	default:
		return msg.Sequence, nil
	}
}

// interruptDoubted ends the contexts of ordered jobs that another worker may soon be given. It does so before AckWait is over, so that no
// worker runs the job, or the next one, beside a handler whose context is live. Waiting jobs leave.
func (w *Worker) interruptDoubted(now time.Time) {
	const margins = 30 // the number of margins in an AckWait: the next heartbeat would be one too late
	after := w.trust - w.cfg.AckWait/margins
	w.deliveries.each(func(d *delivery) {
		if d.line == nil || !d.doubted && !d.orphan && apart(d.known, now) <= after {
			return
		}
		d.doubted = true
		d.line.Signal()
		if d.cancel != nil && !d.interrupted.Swap(true) {
			d.cancel(&LimitLostError{Cause: errDoubted})
		}
	})
}
