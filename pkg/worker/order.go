package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/limit"
)

const (
	// firstLook and lastLook bound the wait between two looks for the end of a job that another worker has, or that waits for its
	// retry. The wait doubles from look to look while that one stays the first, so the end is seen after about twice its time at most.
	firstLook = 10 * time.Millisecond
	lastLook  = 2 * time.Second
)

// errDoubted is why an ordered job may not run.
var errDoubted = errors.New("worker: heartbeats were not confirmed, so another worker may have been given the job")

// awaitOrder waits until all jobs of the subject before d have ended. A job that waits leaves its slot. It costs no request in a
// worker that alone has worked the consumer for a while, and one for each look otherwise.
func (w *Worker) awaitOrder(d *delivery) error {
	s := &slot{delivery: d, worker: w}
	defer s.show(false)
	defer func() {
		if s.parked {
			w.deliveries.park(-1)
		}
	}()
	for wait, seen := firstLook, uint64(0); ; {
		if w.mayBeOthers(d) { // all of a line leave at once: one by one, as their turns come, each would wait for AckWait anew
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
			if next != seen { // jobs end: the next one may do so as soon
				wait, seen = firstLook, next
			}
		}
		if !s.parked && w.deliveries.waiting() >= w.cfg.MaxWaiting {
			w.lines.SendBack(d.line)
		}
		if back := w.lines.SentBack(d.line); back > 0 {
			w.releaseSlot(d)
			return &limit.FullError{Delay: back}
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
		if !w.slots.Acquire(int(w.classOf(d.info.Consumer).priority), w.stopping.Done(), 0) {
			<-w.drained
			return errNotStarted
		}
		s.parked, d.hasSlot = false, true
		w.deliveries.park(-1)
	}
	return nil
}

// nextOf returns the sequence of the first message of a job's subject, which is the job or one before it, or 0 for one that is left in
// another partition. One round trip, to the stream's leader, unless it is sure that none is before the job.
func (w *Worker) nextOf(d *delivery, sure bool, from uint64) (uint64, error) {
	if d.partition > 0 {
		if left, err := w.isLeft(d); err != nil || left {
			return 0, err
		}
	}
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

// interruptDoubted ends the contexts of ordered jobs that another worker may soon be given: before AckWait is over, so that no
// worker runs the job, or the next one, beside a handler whose context is live. Those that wait it has leave.
func (w *Worker) interruptDoubted(now time.Time) {
	const margins = 30 // in an AckWait: the next heartbeat would be too late by one
	after := w.doubtedAfter() - w.cfg.AckWait/margins
	w.deliveries.each(func(d *delivery) {
		if d.line == nil || !d.doubted && !d.orphan && apart(d.known, now) <= after {
			return
		}
		d.doubted = true
		d.line.Signal()
		if d.lost != nil && !d.permitLost.Swap(true) {
			d.lost(&LimitLostError{Cause: errDoubted})
		}
	})
}

// mayBeOthers reports whether another worker may have been given an ordered job.
func (w *Worker) mayBeOthers(d *delivery) bool {
	return d.line != nil && w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter())
}

// prepareOrder makes sure that the stream is one in which the end of a job shows.
func (w *Worker) prepareOrder(ctx context.Context) error {
	asset := "stream " + w.cfg.Stream
	stream, err := w.js.Stream(ctx, w.cfg.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &MissingError{Asset: asset, Cause: err}
	case err != nil:
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy:
		return &DriftError{Asset: asset, Differences: []string{"retention must be workqueue for Policy.Ordered: there a job goes when it ends"}}
	}
	return nil
}
