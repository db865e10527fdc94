package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/order"
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

// ErrGoexit is the error of an attempt whose handler called runtime.Goexit.
var ErrGoexit = errors.New("worker: handler called runtime.Goexit")

// DecodeError is returned when Policy.Decode refuses a payload. The message goes to the dead letters.
type DecodeError struct {
	// Cause is the error of Policy.Decode.
	Cause error

	// Subject is the subject of the message.
	Subject string

	sequence uint64 // of the message: a handler may return the error of another job
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("worker: payload of %q cannot be decoded: %v", e.Subject, e.Cause)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Cause }

// maxShort and maxLong bound the texts that inspectors get, in bytes.
const (
	maxShort = 256
	maxLong  = 512
)

// safeText returns the beginning of an error's text for readers who may not see payloads and passwords.
func safeText(err error) string {
	if undecodable, ok := errors.AsType[*DecodeError](err); ok { // the cause may quote the payload
		return clip(fmt.Sprintf("worker: payload of %q cannot be decoded: see its dead letter", undecodable.Subject), maxLong)
	}
	return clip(redact.Safe(err).Error(), maxLong)
}

// PanicError is the error of an attempt whose handler panicked. The value decides nothing, even if it is a control error.
type PanicError struct {
	// Stack is the stack of the panicking goroutine.
	Stack []byte

	// Value is the argument of panic.
	Value any
}

// Error implements error. The text has no stack: that is for logs and dead letters.
func (e *PanicError) Error() string { return "worker: handler panicked: " + redact.Value(e.Value) }

// TimeoutError is the cause of the end of a handler's context at Policy.Timeout.
type TimeoutError struct {
	// Timeout is the policy's.
	Timeout time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("worker: handler ran longer than its timeout of %s", e.Timeout)
}

// freshFor returns the largest age of a message that counts as sent just now. For the rest of AckWait see doubtedAfter.
func (w *Worker) freshFor() time.Duration { return min(time.Second, w.cfg.AckWait/5) }

// deliver takes a message from the puller. The server has not sent the message before since. deliver returns the number of messages that
// wait behind it, and does not block.
func (w *Worker) deliver(msg *nats.Msg, since time.Time) uint64 {
	now := time.Now()
	known := now
	if apart(since, now) > w.freshFor() {
		known = since // the process may have been stopped, and the server may have given the job to another worker meanwhile
	}
	meta, err := msg.Metadata()
	if err != nil {
		w.log.Error(EventJobUnknown, "subject", msg.Subject, "error", err)
		return 0
	}
	count := int(meta.NumDelivered)
	r := w.routeOf(msg.Subject)
	d := newDelivery(r != nil && r.policy.Ordered)
	d.beating, d.count, d.known, d.latest, d.first = true, meta.Sequence.Consumer, known, count, count
	d.msg, d.reply, d.route = msg, msg.Reply, r
	d.keep, d.unique = keepOf(msg.Header) // once: a handler that writes into its headers must not race with heartbeats
	d.info = Info{
		Consumer: meta.Consumer, Deliveries: count, EnqueuedAt: meta.Timestamp,
		ID: jobmsg.ID(msg.Header, meta.Stream, meta.Sequence.Stream), Sequence: meta.Sequence.Stream,
		Stream: meta.Stream, Subject: msg.Subject,
	}
	d.created = w.classOf(meta.Consumer).created.Load()
	back := w.deliveries.follow(d)
	if back {
		w.contact.lose()
		w.beginContact(nil)
	}
	if w.ordered {
		w.lines.Follow(order.Arrival{
			Back: back, Consumer: meta.Consumer, Delivered: count, Delivery: d.count, Sequence: d.info.Sequence, Subject: msg.Subject,
		}, d.line)
	}
	switch w.deliveries.add(d, now) {
	case fresh:
		if d.line != nil {
			w.lines.Add(d.line)
		}
		w.running.Add(1)
		w.start(d)
	case acked:
		w.running.Add(1)
		go w.reack(d)
	case duplicate:
	}
	return meta.NumPending
}

// start lets a goroutine take d to its end: an idle one that has ended another delivery, if there is one. The stack of an idle goroutine
// has grown to the size that jobs need, which saves a tenth of the client's CPU per job. At most as many goroutines are idle as were ever
// busy at a time.
func (w *Worker) start(d *delivery) {
	select {
	case w.idle <- d:
	default:
		go w.processAll(d)
	}
}

// processAll takes d to its end, and then other deliveries, until no more come.
func (w *Worker) processAll(d *delivery) {
	for ; d != nil; d = w.next() {
		w.process(d)
	}
}

// next waits, on an idle goroutine, for the next delivery, and returns nil when no more come.
func (w *Worker) next() *delivery {
	select {
	case d := <-w.idle:
		return d
	case <-w.drained:
		return nil
	}
}

// process takes a delivery to its end. The handler runs on this goroutine: when it calls runtime.Goexit, the deferred part
// still settles the job and frees the slot, and the goroutine is not used again.
func (w *Worker) process(d *delivery) {
	defer redact.Catch(w.log, "job") // only the net: each callback is protected where it is called
	defer func() {
		abandoned := w.deliveries.remove(d, time.Now())
		if d.line != nil {
			w.lines.End(d.line, d.acked)
		}
		w.puller.Freed()
		if !abandoned {
			w.running.Done()
		}
	}()
	if !w.acquireSlot(d) {
		w.finish(d, errNotStarted)
		return
	}
	d.hasSlot = true
	defer func() { w.releaseSlot(d) }()
	err := ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Stack: debug.Stack(), Value: value}
		}
		w.finish(d, err)
	}()
	err = w.attempt(d)
}

// acquireSlot waits for a free slot, and reports whether the delivery has one then. As a rule a slot is free. There is none when a request
// that was given up for lost brought messages after all, or when jobs that had waited for their priority or a limit took the slots. When
// the worker stops first, acquireSlot returns false only after the last request has ended: a job that is handed back earlier could come
// here again. With several priorities, or limits, it also returns false after heldFor: by then no request for this job's priority is left.
func (w *Worker) acquireSlot(d *delivery) bool {
	var longest time.Duration
	if len(w.classes) > 1 || w.limited || w.ordered {
		longest = heldFor
	}
	if w.stopping.Err() == nil && w.slots.acquire(int(w.classOf(d.info.Consumer).priority), w.stopping.Done(), longest) {
		return true
	}
	if w.stopping.Err() != nil {
		<-w.drained
	}
	return false
}

// releaseSlot frees the slot of a delivery that has one.
func (w *Worker) releaseSlot(d *delivery) {
	if !d.hasSlot {
		return
	}
	d.hasSlot = false
	w.slots.release()
	w.limits.Freed()
}

// attempt runs the handler of d once, if it has attempts left.
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
	w.deliveries.cancellable(d, cancel)
	if d.line != nil {
		if err := w.awaitOrder(d); err != nil {
			return err
		}
	}
	permit, err := w.admit(d, cancel)
	defer permit.Leave()
	if err != nil {
		return err
	}
	if d.cancelled.Load() { // while it waited
		return ErrCancelled
	}
	if w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter()) { // check again: admit has waited for answers of the server
		if err := w.checkHeld(d); err != nil {
			return err
		}
	}
	return w.begin(ctx, d)
}

// begin runs the handler of d, which has its slot and its permits.
func (w *Worker) begin(ctx context.Context, d *delivery) error {
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
	defer d.endSteps()
	err := w.handle(&attemptContext{Context: ctx, delivery: d, worker: w}, d)
	if err != nil {
		err = explain(ctx, redact.Safe(err))
	}
	return err
}

// admit decides whether the job may run, and counts the attempt. The returned permit may be nil.
func (w *Worker) admit(d *delivery, cancel context.CancelCauseFunc) (permit *limit.Permit, err error) {
	if len(d.policy.Limits) > 0 {
		if permit, err = w.acquirePermits(d, cancel); err != nil {
			return nil, err
		}
	}
	if d.waited {
		if err := w.checkPaused(d); err != nil { // by now
			return permit, err
		}
	}
	if err := w.checkHeld(d); err != nil {
		return permit, err
	}
	if err := w.checkEnded(d); err != nil {
		return permit, err
	}
	d.info.Attempt = w.countAttempt(d)
	if d.info.Attempt > d.info.MaxAttempts {
		d.info.Attempt-- // this delivery is none
		return permit, w.exhausted(d)
	}
	if d.info.Attempt >= suspect {
		w.recordLost(d)
	}
	return permit, nil
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

// Middleware runs around every attempt of every job, on the goroutine of its handler: for tracing, for values in the context,
// for checks that all handlers share. It has to call next once at most, and to return the error of next, or another error instead. If it
// does not call next, it decides the attempt without the handler. The context that it passes to next must be derived from ctx. A panic of
// the handler passes through it.
//
// header holds the headers of the message, nil when it has none, and must not be changed.
type Middleware func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error

// wrap puts the middleware around work, the first one outermost.
func (d *delivery) wrap(all []Middleware, work func(context.Context) error) func(context.Context) error {
	for _, outer := range slices.Backward(all) {
		next := work
		work = func(ctx context.Context) error { return outer(ctx, d.info, d.msg.Header, next) }
	}
	return work
}

// handle runs the handler inside the middleware.
func (w *Worker) handle(ctx context.Context, d *delivery) (err error) {
	work := d.wrap(w.cfg.Middleware, func(ctx context.Context) error { return d.route.work(ctx, d.info, d.msg) })
	d.label.do(ctx, d.route.labels, func(ctx context.Context) { err = work(ctx) })
	return err
}

// explain adds the cause of the context's end to an error that the end has caused.
func explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) || !errors.Is(err, ctx.Err()) {
		return err
	}
	return errors.Join(err, cause)
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
