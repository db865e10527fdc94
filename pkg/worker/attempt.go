package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// unhandledDelay is the time for which a message without a handler is put off. While workers of two versions share a consumer, another
// worker may have the handler.
const unhandledDelay = 5 * time.Second

// heldFor is the time for which a job that came when all slots were taken waits for a slot here, with heartbeats, before it is handed back
// for another worker. A job comes at that time only if its priority had a request waiting at the server, which cannot be withdrawn.
const heldFor = 250 * time.Millisecond

var (
	errNotStarted = refused(OutcomeHandedBack, 0, "worker: stopped before the job started")
	errUnhandled  = refused(OutcomeSnoozed, unhandledDelay, "worker: no handler for this subject")
)

// process takes a delivery to its end: it waits for a slot, makes the attempt, and settles the job by the outcome. The handler runs on
// this goroutine: when it calls runtime.Goexit, the deferred part still settles the job and frees the slot, and the goroutine is not used
// again.
func (w *Worker) process(d *delivery) {
	defer shown.Catch(w.log, "job") // only the net: each callback is protected where it is called
	defer func() {
		abandoned := w.deliveries.remove(d, time.Now())
		if d.line != nil {
			w.lines.End(d.line, d.acked)
		}
		w.puller.Freed()
		if !abandoned { // else stop counts it
			w.running.Done()
		}
	}()
	// As a rule a slot is free, because the worker asks for as many jobs as it has slots.
	d.hasSlot = w.stopping.Err() == nil && w.slots.tryAcquire() || w.awaitSlot(d)
	if !d.hasSlot {
		w.finish(d, errNotStarted)
		return
	}
	defer w.releaseSlot(d)
	err := ErrGoexit // unless attempt returns
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Stack: debug.Stack(), Value: value}
		}
		w.finish(d, err)
	}()
	err = w.attempt(d)
}

// awaitSlot waits for a slot, and reports whether the delivery got one. There is none at once when a request that was given up for lost
// brought messages after all, or when jobs that had waited for their priority or a limit took the slots. With several priorities, or
// limits, it returns false after heldFor: by then no request for this job's priority is left.
func (w *Worker) awaitSlot(d *delivery) bool {
	var longest time.Duration
	if len(w.classes) > 1 || w.limited || w.ordered {
		longest = heldFor
	}
	if w.stopping.Err() == nil && w.slots.acquire(int(d.class.priority), w.stopping.Done(), longest) {
		return true
	}
	if w.stopping.Err() != nil {
		<-w.drained // the last request would bring a job here again that is given back before
	}
	return false
}

// attempt makes one attempt: it waits for the job's turn and its permits, and runs the handler if the job may still run. An error that is
// a refusal ended the attempt before its handler.
func (w *Worker) attempt(d *delivery) error {
	if d.route == nil {
		return errUnhandled
	}
	d.policy, d.info.MaxAttempts, d.info.Pattern = d.route.policy, d.route.policy.MaxAttempts, d.route.pattern
	if err := w.checkPaused(d); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(w.jobs)
	defer cancel(nil)
	w.deliveries.mu.Lock()
	d.cancel = cancel // from now on a client can cancel the job, also while it waits
	w.deliveries.mu.Unlock()
	if d.line != nil {
		if err := w.awaitOrder(d); err != nil {
			return err
		}
	}
	// Permits come after the turn: a job that held permits while others are before it could keep those from running.
	if len(d.policy.Limits) > 0 {
		permit, err := w.acquirePermits(d, cancel)
		defer permit.Leave()
		if err != nil {
			return err
		}
	}
	d.info.Attempt = 1
	// The first delivery of a job starts at once. Anything else may have run before, or may run elsewhere, and costs reads.
	if d.first > 1 || d.waited || w.isDoubted(d) || d.unique && !w.isFirst(d) {
		if err := w.admit(d); err != nil {
			return err
		}
	}
	return w.run(ctx, d)
}

// admit decides whether a job may run that was delivered before, has waited, or may have been given to another worker, and counts the
// attempt.
func (w *Worker) admit(d *delivery) error {
	if d.waited {
		if err := w.checkPaused(d); err != nil { // by now
			return err
		}
	}
	if err := w.checkHeld(d); err != nil {
		return err
	}
	if d.unique && (d.waited || !w.isFirst(d)) {
		if err := w.checkEnded(d); err != nil {
			return err
		}
	}
	if d.info.Attempt = w.countAttempt(d); d.info.Attempt > d.info.MaxAttempts {
		d.info.Attempt-- // this delivery is none
		return w.exhausted(d)
	}
	if d.info.Attempt >= suspect {
		w.recordLost(d)
	}
	if d.cancelled.Load() { // while it waited
		return ErrCancelled
	}
	if w.isDoubted(d) { // check again: the reads above have taken time
		return w.checkHeld(d)
	}
	return nil
}

// run runs the handler of d inside the middleware.
func (w *Worker) run(ctx context.Context, d *delivery) (err error) {
	if timeout := d.policy.Timeout; timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, timeout, &TimeoutError{Timeout: timeout})
		defer stop()
	}
	d.label = newLabel()
	if !w.deliveries.begin(d, time.Now()) {
		return errNotStarted
	}
	if w.cfg.Hooks.Started != nil {
		w.observe("Hooks.Started", func() { w.cfg.Hooks.Started(d.info) })
	}
	defer func() { // no step begins after the attempt, even in a goroutine that the handler left behind
		d.opening.Do(func() {})
		if d.journal != nil {
			d.journal.Close()
		}
	}()
	work := func(ctx context.Context) error { return d.route.work(ctx, d.info, d.msg) }
	for _, outer := range slices.Backward(w.cfg.Middleware) {
		next := work
		work = func(ctx context.Context) error { return outer(ctx, d.info, d.msg.Header, next) }
	}
	// Goroutines inherit the labels, so a profile and the stacks of a stuck handler name its job. Sorted labels cost less.
	labels := append(make([]string, 0, usualLabels), attemptLabel, string(d.label))
	labels = append(labels, d.route.labels...)
	pprof.Do(&attemptContext{Context: ctx, delivery: d, worker: w}, pprof.Labels(labels...), func(ctx context.Context) { err = work(ctx) })
	if err != nil {
		err = explain(ctx, shown.Error(err))
	}
	return err
}

// errGone is the error of an attempt at a job that is no longer in its stream.
var errGone = &refusal{outcome{kind: OutcomeFenced}, "worker: the job is gone from its stream: it ended elsewhere, or was deleted"}

// checkThere returns errGone when a job that another worker may have been given is no longer in its stream: the other worker has ended it.
// Only a work queue shows that; in other streams jobs stay. One round trip, to the stream's leader. A deposed leader that does not know of
// it may still have the job, as may a leader that applies an acknowledgement at this moment.
func (w *Worker) checkThere(ctx context.Context, d *delivery) error {
	switch msg, found, err := w.api.Get(ctx, d.info.Stream, jsapi.Query{Sequence: d.info.Sequence}); {
	case err != nil:
		return fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || !msg.Time.Equal(d.info.EnqueuedAt):
		return errGone
	default:
		return nil
	}
}

// checkHeld is checkThere for a job that is about to start. It reads only after a disturbance, or when a job that waited for a limit had
// been delivered before: the former worker may still have the job.
func (w *Worker) checkHeld(d *delivery) error {
	if w.isTaken(d) {
		return errDoubted // the other worker may be working the job
	}
	if again := d.first > 1 && d.waited; !again && !w.isDoubted(d) {
		return nil
	}
	return w.checkThere(w.settling, d)
}

// checkStep is checkThere for a step that is about to run. It reads only after a disturbance.
func (w *Worker) checkStep(ctx context.Context, d *delivery) (doubted bool, err error) {
	if !w.isDoubted(d) {
		return false, nil
	}
	if err = w.checkThere(ctx, d); errors.Is(err, errGone) {
		err = journal.ErrGone
	}
	return true, err
}

// exhausted returns the error of a job that has used its attempts: that of the last one, if it reported it, and otherwise that of the last
// one that did, or none. It may have used more than the policy allows by now. One round trip.
func (w *Worker) exhausted(d *delivery) error {
	used, allowed := d.info.Attempt, d.info.MaxAttempts
	switch last, known := w.lastFailure(d); {
	case !known: // the bucket does not answer, or a newer failure has the record's place
		return fmt.Errorf("worker: attempts exhausted: %d of %d used, and how the last one ended is no longer recorded", used, allowed)
	case last.Attempt < used:
		return fmt.Errorf("worker: attempts exhausted: the worker of attempt %d of %d ended before it could report%s",
			used, allowed, last.reported())
	default:
		return fmt.Errorf("worker: attempts exhausted: attempt %d failed, and the policy allows %d: %s", used, allowed, last.Error)
	}
}

// explain adds the cause of the context's end to an error that the end has caused.
func explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) || !errors.Is(err, ctx.Err()) {
		return err
	}
	return errors.Join(err, cause)
}

// observe calls a function of the user on a goroutine that runtime.Goexit may end. A panic is logged and changes nothing.
func (w *Worker) observe(name string, hook func()) {
	defer shown.Catch(w.log, name)
	hook()
}

// apart calls a function of the user from a goroutine that must not end, and reports whether the function returned.
func (w *Worker) apart(name string, call func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer shown.Catch(w.log, name)
		call()
		returned = true
	}()
	<-done
	return returned
}

// countAttempt returns the number of this attempt: the deliveries less the uncounted ones. The first delivery is the first
// attempt. For a later delivery the uncounted deliveries are read. When that fails, the job has another attempt: it must not be given up
// for attempts that it may not have used.
func (w *Worker) countAttempt(d *delivery) int {
	if d.first <= 1 {
		return 1
	}
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()
	noted, err := readUncounted(ctx, w.bucket, d.place())
	if err != nil {
		w.log.Warn(EventUncountedFailed, append(d.attrs(), "error", w.denial(err))...)
		return min(d.first, d.info.MaxAttempts)
	}
	d.noted = noted
	return max(d.first-noted.Uncounted, 1)
}

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
