package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/order"
)

// unhandledDelay is the time for which a message without a handler is deferred. While workers of two versions share a consumer, another
// worker may have the handler.
const unhandledDelay = 5 * time.Second

// heldFor is the time for which a job that came when all slots were taken waits for a slot here, with heartbeats, before it is handed back
// for another worker. A job comes at that time only if its priority had a request waiting at the server, which cannot be withdrawn.
const heldFor = 250 * time.Millisecond

var (
	errNotStarted = refused(OutcomeHandedBack, 0, "worker: stopped before the job started")
	errUnhandled  = refused(OutcomeSnoozed, unhandledDelay, "worker: no handler for this subject")
)

// accept takes a message from the puller, and returns the number of messages that wait behind it. The server has not sent the message
// before since. accept does not block.
func (w *Worker) accept(msg *nats.Msg, since time.Time) (behind uint64) {
	meta, err := msg.Metadata()
	if err != nil {
		w.log.Error(EventJobUnknown, "subject", msg.Subject, "error", err)
		return 0
	}
	now := time.Now()
	d := w.newDelivery(msg, meta, since, now)
	kind, wentBack := w.deliveries.arrive(d, now)
	if wentBack {
		// The count of deliveries is not certain any more: a job that comes for the first time may have run.
		w.contact.lose()
		w.beginContact(nil)
	}
	if w.ordered {
		// Every delivery counts, also a copy, since a gap between two means that a job went to another worker.
		w.lines.Follow(order.Arrival{
			Back: wentBack, Consumer: meta.Consumer, Delivered: d.first, Delivery: d.count, Sequence: d.info.Sequence, Subject: msg.Subject,
		}, d.line)
	}
	switch kind {
	case arrivedFresh:
		if d.line != nil {
			w.lines.Add(d.line)
		}
		w.running.Add(1)
		select {
		case w.idle <- d:
			// The stack of an idle goroutine has grown to the size that jobs need: a tenth of the client's CPU per job.
		default:
			go w.serve(d)
		}
	case arrivedAcked:
		w.running.Add(1)
		go w.reack(d)
	case arrivedCopy:
		// The attempt that runs answers under the newest delivery, so this one needs nothing.
	}
	return meta.NumPending
}

// newDelivery reads what a message says about its job.
func (w *Worker) newDelivery(msg *nats.Msg, meta *nats.MsgMetadata, since, now time.Time) *delivery {
	known := now
	if elapsed(since, now) > w.fresh {
		// The process may have been stopped, and the server may have given the job to another worker in the meantime.
		known = since
	}
	count := int(meta.NumDelivered)
	d := &delivery{
		class: w.classes[0], count: meta.Sequence.Consumer, first: count, known: known, latest: count, msg: msg, reply: msg.Reply,
		info: Info{
			Consumer: meta.Consumer, Deliveries: count, EnqueuedAt: meta.Timestamp,
			ID: jobmsg.ID(msg.Header, meta.Stream, meta.Sequence.Stream), Sequence: meta.Sequence.Stream,
			Stream: meta.Stream, Subject: msg.Subject,
		},
	}
	for _, c := range w.classes {
		if c.consumer == meta.Consumer {
			d.class = c
		}
	}
	d.created = d.class.created.Load()
	// Read the headers once: a handler that writes into them must not race with heartbeats.
	d.keep, d.unique = jobmsg.KeepOf(msg.Header)
	if d.route, _ = w.routing.Find(msg.Subject); d.route != nil && d.route.policy.Ordered {
		// The channel exists before a heartbeat can find the delivery, and signal it.
		d.line = &order.Job{Turn: make(chan struct{}, 1)}
	}
	return d
}

// serve processes d, and then further deliveries, until no more come. At most as many goroutines are idle as were ever busy at a time.
func (w *Worker) serve(d *delivery) {
	for {
		w.process(d)
		select {
		case d = <-w.idle:
		case <-w.drained:
			return
		}
	}
}

// process takes a delivery to its end: it waits for a slot, makes the attempt, and settles the job by the outcome. The handler runs on
// this goroutine: when it calls runtime.Goexit, the deferred part still settles the job and frees the slot, and the goroutine is not used
// again.
func (w *Worker) process(d *delivery) {
	// Only the net: each callback is protected where it is called.
	defer redact.Catch(w.log, "job")
	defer func() {
		abandoned := w.deliveries.remove(d, time.Now())
		if d.line != nil {
			w.lines.End(d.line, d.ackConfirmed)
		}
		w.puller.Freed()
		// For an abandoned delivery, abandon has already done this.
		if !abandoned {
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
	// Goexit runs the deferred functions and nothing else, so its error is the one that stays when attempt neither returns nor panics.
	err := ErrGoexit
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
		// No failure of the job: a worker of another version may share the consumer and have the handler.
		return errUnhandled
	}
	d.policy, d.info.MaxAttempts, d.info.Pattern = d.route.policy, d.route.policy.MaxAttempts, d.route.pattern
	// Before the turn and the permits, which a paused job would keep from others for nothing.
	if err := w.checkPaused(d); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(w.jobs)
	defer cancel(nil)
	w.deliveries.mu.Lock()
	// From now on a client can cancel the job, also while it waits.
	d.cancel = cancel
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
	// The pause may have begun while the job waited.
	if d.waited {
		if err := w.checkPaused(d); err != nil {
			return err
		}
	}
	if err := w.checkHeld(d); err != nil {
		return err
	}
	d.info.Attempt = w.countAttempt(d)
	// As late as possible: an attempt elsewhere that records its end after this read is repeated.
	if d.unique && (d.waited || !w.isFirst(d)) {
		if err := w.checkEnded(d); err != nil {
			return err
		}
	}
	if d.info.Attempt > d.info.MaxAttempts {
		// The handler does not run, so this delivery is no attempt, and the dead letter must not count it.
		d.info.Attempt--
		return w.exhausted(d)
	}
	if d.info.Attempt >= suspect {
		w.recordLost(d)
	}
	if d.cancelled.Load() {
		return ErrCancelled
	}
	// The reads above have taken time, in which heartbeats may have been lost.
	if w.isDoubted(d) {
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
	// Set before the handler counts as running, because inspectors read it from then on.
	d.label = label(strconv.FormatUint(lastLabel.Add(1), 36))
	if !w.deliveries.startHandler(d, time.Now()) {
		return errNotStarted
	}
	if w.cfg.Hooks.Started != nil {
		w.observe("Hooks.Started", func() { w.cfg.Hooks.Started(d.info) })
	}
	defer func() {
		// No step begins after the attempt, even in a goroutine that the handler left behind.
		d.opening.Do(func() {})
		if d.journal != nil {
			d.journal.Close()
		}
	}()
	handle := func(ctx context.Context) error { return d.route.handle(ctx, d.info, d.msg) }
	for _, outer := range slices.Backward(w.cfg.Middleware) {
		next := handle
		handle = func(ctx context.Context) error { return outer(ctx, d.info, d.msg.Header, next) }
	}
	// Goroutines inherit the labels, so a profile and the stacks of a stuck handler name its job. Sorted labels cost less.
	labels := append(make([]string, 0, usualLabels), attemptLabel, string(d.label))
	labels = append(labels, d.route.labels...)
	pprof.Do(&attemptContext{Context: ctx, delivery: d, worker: w}, pprof.Labels(labels...), func(ctx context.Context) { err = handle(ctx) })
	if err != nil {
		// Handlers return "context canceled" whatever ended the context; operators need the cause.
		err = explain(ctx, redact.Safe(err))
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
	defer redact.Catch(w.log, name)
	hook()
}

// callApart calls a function of the user from a goroutine that must not end, and reports whether the function returned.
func (w *Worker) callApart(name string, call func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer redact.Catch(w.log, name)
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
