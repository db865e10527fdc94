package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// errOrphan is the reason that no answer is sent for a job whose consumer was deleted in the meantime.
var errOrphan = errors.New("worker: the consumer that delivered the job was deleted, and made again")

// outcome is how an attempt ended, and how to settle its job.
type outcome struct {
	kind      Outcome
	delay     time.Duration // before the next delivery
	err       error         // as reported
	reason    Reason        // why the job is dead
	settled   bool          // an earlier delivery was settled, and only its acknowledgement is missing
	uncounted bool          // the delivery uses no attempt
}

// refusal is the error of an attempt that ended before its handler. It has the outcome, so that no error of a handler can pass for one.
type refusal struct {
	outcome

	text string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// refused returns a refusal that uses no attempt.
func refused(kind Outcome, delay time.Duration, text string) *refusal {
	return &refusal{outcome{delay: delay, kind: kind, uncounted: true}, text}
}

// ending is all that decides the outcome of an attempt.
type ending struct {
	info        Info
	cancelled   bool  // by a client
	err         error // of the handler, or the reason that it did not run
	interrupted bool  // the worker has ended the handler's context
	started     bool  // the handler was called
	taken       error // another worker or attempt has the job, nil for none
}

// The answers that a worker can give to a delivered message.
const (
	ackDone     = "+ACK"
	ackLater    = "-NAK"
	ackProgress = "+WPI"
)

// decide returns the outcome of an attempt, with the wait of backoff before a retry. Nothing changes it later: what the server makes of it
// is the result of settle.
func decide(e ending, backoff func(attempt int) time.Duration) outcome {
	switch {
	case e.taken != nil:
		// Whatever the handler returned: an answer could settle the other attempt's delivery, or start the job again.
		return outcome{kind: OutcomeFenced, err: e.taken}
	case e.err == nil:
		// Also when a client has cancelled the job: its work is done.
		return outcome{kind: OutcomeCompleted}
	case e.cancelled:
		// Whatever the handler returned: it fails because its context has ended. The client has removed the job.
		return outcome{kind: OutcomeCancelled, settled: true}
	}
	// A handler may return an error that it has from a hook. Only an attempt that ended before its handler is refused.
	if !e.started {
		if r, ok := errors.AsType[*refusal](e.err); ok {
			o := r.outcome
			if !o.settled || o.kind == OutcomeDead { // a job that completed or was cancelled earlier has no error
				o.err = e.err
			}
			return o
		}
	}
	// Only errors of this job decide. A panic or Goexit is this attempt's if it is not wrapped, and a payload is this job's by its sequence.
	_, panicked := e.err.(*PanicError) //nolint:errorlint // see above
	exited := e.err == ErrGoexit       //nolint:errorlint // see above
	discard, _ := errors.AsType[*DiscardError](e.err)
	decode, _ := errors.AsType[*DecodeError](e.err)
	retry, _ := errors.AsType[*RetryError](e.err)
	snooze, _ := errors.AsType[*SnoozeError](e.err)
	o := outcome{err: e.err}
	switch {
	case decode != nil && decode.sequence == e.info.Sequence && decode.Subject == e.info.Subject:
		o.kind, o.reason = OutcomeDead, ReasonUndecodable
	case discard != nil: // before the others, because nobody discards by accident
		o.kind, o.reason = OutcomeDead, ReasonDiscarded
	case snooze != nil:
		o.kind, o.delay, o.uncounted = OutcomeSnoozed, bounded(snooze.Delay), true
	case e.interrupted && !panicked && !exited && retry == nil:
		// The error is most likely that of the ended context. A panic is the handler's own, and Retry was asked for.
		o.kind, o.uncounted = OutcomeHandedBack, true
	case e.info.Attempt >= e.info.MaxAttempts:
		o.kind, o.reason = OutcomeDead, ReasonExhausted
	case retry != nil:
		o.kind, o.delay = OutcomeRetried, bounded(retry.After)
	default:
		o.kind, o.delay = OutcomeRetried, backoff(e.info.Attempt)
	}
	return o
}

// finish settles a job whose attempt has ended with err.
func (w *Worker) finish(d *delivery, err error) {
	ended := time.Now()
	if !w.deliveries.endHandler(d) {
		// The job was handed back, and may run elsewhere: its outcome here counts for nothing.
		w.log.Warn(EventJobLate, append(d.attrs(), "error", err)...)
		return
	}
	o := decide(w.endingOf(d, err), func(attempt int) time.Duration { return w.backoff(d.policy, attempt) })
	w.report(d, o, w.settle(d, o), ended)
}

// endingOf collects what decides the outcome of an attempt.
func (w *Worker) endingOf(d *delivery, err error) ending {
	e := ending{
		info: d.info, cancelled: d.cancelled.Load(), err: err, interrupted: w.jobs.Err() != nil || d.interrupted.Load(),
		started: !d.started.IsZero(),
	}
	switch {
	case w.isTaken(d):
		e.taken = errors.Join(errDoubted, err)
	case d.journal != nil:
		e.taken = d.journal.Fenced()
	case err != nil && d.info.Attempt == 0:
		// A panic of Limit.Key fails the attempt like one of the handler, so it counts. Of all that refuse a job nothing reads the number.
		if _, isRefused := errors.AsType[*refusal](err); !isRefused && !e.cancelled {
			d.info.Attempt = w.countAttempt(d)
			e.info.Attempt = d.info.Attempt
		}
	}
	return e
}

// settle carries out an outcome, and returns it if the server has confirmed it. Otherwise it returns OutcomeUnknown, or OutcomeFenced if
// another worker has the job by now.
func (w *Worker) settle(d *delivery, o outcome) Outcome {
	switch {
	case o.kind == OutcomeFenced:
		return w.leave(d, o)
	case o.settled || o.kind == OutcomeCompleted:
		// Only the acknowledgement is missing.
	case o.kind != OutcomeDead:
		return w.giveBack(d, o)
	default:
		// The dead letter comes before the acknowledgement, so a crash in between repeats it, and loses nothing.
		if failed := w.deadLetter(d, o.reason, o.err); failed != nil {
			w.log.Error(EventDeadFailed, append(d.attrs(), "error", w.denial(failed))...)
			again := outcome{delay: unhandledDelay, err: o.err, kind: OutcomeRetried}
			if d.started.IsZero() {
				// The record of the last failure stays: it has the error of the attempt that did run.
				again = errUnhandled.outcome
			}
			w.giveBack(d, again)
			return OutcomeUnknown
		}
	}
	// The record comes before the acknowledgement: the key must not be free in between.
	if d.unique && !o.settled && !w.recordEnd(d, o.kind) {
		return OutcomeUnknown
	}
	if record := d.msg.Header.Get(jobmsg.HeaderReplayRecord); record != "" {
		w.recordReplay(d, record)
	}
	// The job of a dead letter is acknowledged as well, not terminated: its letter has more than the server's advisory.
	if !w.acknowledge(d, o.kind) {
		return OutcomeUnknown
	}
	d.ackConfirmed = true
	// A dead job keeps its steps, which a replay resumes.
	if d.journal != nil && o.kind == OutcomeCompleted && !o.settled {
		d.journal.Forget()
	}
	return o.kind
}

// reack acknowledges a copy of a job that this worker has acknowledged before.
func (w *Worker) reack(d *delivery) {
	defer w.running.Done()
	w.log.Info(EventJobCopied, append(d.attrs(), "deliveries", d.info.Deliveries)...)
	w.acknowledge(d, OutcomeUnknown)
}

// acknowledge acknowledges a job until the server confirms it, and reports whether it did. Acknowledgements can be repeated without harm,
// under the newest delivery. Heartbeats go on in the meantime, so the job is not started elsewhere while the server can be reached.
func (w *Worker) acknowledge(d *delivery, kind Outcome) bool {
	until := time.Now().Add(w.cfg.SettleTimeout)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		// Under the newest delivery, which may have come since the last try.
		w.deliveries.mu.Lock()
		reply := d.reply
		w.deliveries.mu.Unlock()
		err := w.answer(d, reply, ackDone)
		if err == nil {
			w.acks.add(ack{consumer: d.info.Consumer, created: d.class.created.Load(), reply: reply})
			return true
		}
		// The acknowledgement of an ordered job that another worker has would start the next job beside it.
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, errOrphan) || !sleepUntil(w.settling, wait, until) || w.isTaken(d) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", kind, "error", w.denial(err))...)
			return false
		}
	}
}

// giveBack gives a job back to the server, to be delivered again after a delay. The uncounted deliveries are recorded before: after a crash
// in between, a delivery is uncounted whose job did nothing more.
//
// The answer is sent once only. A repeated answer could settle the job's next delivery, which runs on another worker. When the answer was
// lost, the job comes back after AckWait instead.
func (w *Worker) giveBack(d *delivery, o outcome) Outcome {
	if d.recorded.Load() {
		// Readers would see the job as running until its next delivery.
		w.recordState(d, StateQueued)
	}
	// extra are copies that were dropped here because the job was running.
	reply, extra := w.deliveries.endBeats(d)
	n := uncounted{Last: d.first + extra, Uncounted: extra, Delay: o.delay}
	if o.uncounted {
		n.Uncounted++
	}
	if n.Uncounted > 0 {
		w.recordUncounted(d, n)
	}
	// The record took a round trip, in which the doubt may have begun.
	if w.isTaken(d) {
		return OutcomeFenced
	}
	if o.kind == OutcomeRetried {
		w.recordFailure(d, o.delay, o.err)
	}
	answer := ackLater
	if o.delay > 0 {
		answer = fmt.Sprintf("%s {\"delay\": %d}", ackLater, o.delay.Nanoseconds())
	}
	if err := w.answer(d, reply, answer); err != nil {
		w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", o.kind, "error", w.denial(err))...)
		return OutcomeUnknown
	}
	return o.kind
}

// leave drops a job that another attempt has taken over, without an answer that could settle the job or start it again. The job is given
// back only if its newest delivery came to this worker after all, so that no other worker holds it.
func (w *Worker) leave(d *delivery, o outcome) Outcome {
	if w.deliveries.redelivered(d) && !w.isTaken(d) {
		return w.giveBack(d, o)
	}
	w.deliveries.endBeats(d)
	return o.kind
}

// answer sends an answer to a delivery and waits for the server to confirm it.
func (w *Worker) answer(d *delivery, reply, answer string) error {
	if reply == "" {
		return errOrphan
	}
	if d.line == nil && !w.nc.IsConnected() {
		// The client keeps the answer until it is connected again. The answer of an ordered job could arrive when another worker has the job.
		_ = w.nc.Publish(reply, []byte(answer)) // Request returns the reason that it cannot be sent
	}
	if _, err := w.inbox.Request(w.settling, &nats.Msg{Subject: reply, Data: []byte(answer)}, w.cfg.RequestTimeout); err != nil {
		return fmt.Errorf("worker: %s: %w", answer, err)
	}
	return nil
}

// report logs the outcome of an attempt, as far as it was reached, and calls the hook.
func (w *Worker) report(d *delivery, o outcome, reached Outcome, ended time.Time) {
	err := o.err
	// Refusals are told apart only before the handler: the error of a handler may match anything.
	early := d.started.IsZero()
	switch {
	case early && errors.Is(err, errUnhandled):
		w.log.Error(EventJobUnhandled, append(d.attrs(), "delay", o.delay)...)
		w.recent.unhandled.Store(d.describeUnhandled(ended))
	case early && errors.Is(err, errLimitUnreadable):
		w.log.Error(EventLimitUnreadable, append(d.attrs(), "error", err)...)
	case reached == OutcomeDead:
		w.log.Error(EventJobDead, append(d.attrs(), "error", err, "reason", o.reason)...)
	case reached == OutcomeFenced:
		w.log.Warn(EventJobFenced, append(d.attrs(), "error", err)...)
	case reached == OutcomeRetried:
		w.logRetry(d, o)
	case reached == OutcomeHandedBack:
		w.log.Info(EventJobHandedBack, d.attrs()...)
	}
	// An attempt that ended before its handler does not count, unless its job was given up.
	if !early || reached == OutcomeDead {
		w.recent.add(d, reached, err, ended)
	}
	if w.cfg.Hooks.Settled == nil {
		return
	}
	// The hook comes last: who waits for it finds the outcome logged and counted.
	s := Settlement{Info: d.info, Delay: o.delay, Err: err, Outcome: reached}
	if !early {
		s.Ran, s.Waited = ended.Sub(d.started), d.started.Sub(d.info.EnqueuedAt)
	}
	w.observe("Hooks.Settled", func() { w.cfg.Hooks.Settled(s) })
}

// logRetry logs a failed attempt, as a warning where it is the first failure of its kind in a minute.
func (w *Worker) logRetry(d *delivery, o outcome) {
	level, attrs := slog.LevelDebug, append(d.attrs(), "error", o.err, "delay", o.delay)
	if n := w.failures.add(d.info.Pattern, d.failed, time.Now()); n > 0 {
		level, attrs = slog.LevelWarn, append(attrs, "failures", n)
	}
	w.log.Log(w.settling, level, EventJobRetried, attrs...)
}

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
	return clip(redact.Error(err).Error(), maxLong)
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

// RetryError is the error of [Retry].
type RetryError struct {
	// After is the wait before the next attempt, without backoff and jitter.
	After time.Duration

	// Cause is the reason. It may be nil.
	Cause error
}

// Retry fails this attempt and asks for the next one after the given wait, instead of the policy's backoff. Use it when a
// provider answered with the time of the next call. The worker waits for at least 100 ms and at most ten years. After the last attempt the
// job goes to the dead letters all the same.
func Retry(after time.Duration, cause error) error {
	return &RetryError{After: after, Cause: redact.Safe(cause)}
}

// Error implements error: the text of the cause, because a dead letter says by its Reason how the job ended.
func (e *RetryError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return fmt.Sprintf("worker: retry after %s", e.After)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// SnoozeError is the error of [Snooze].
type SnoozeError struct {
	// Delay is the wait before the job is delivered again.
	Delay time.Duration
}

// Snooze puts the job off without using an attempt: the next delivery has the same Job.Attempt. It costs two round trips more
// than [Retry]. The worker waits for at least 100 ms and at most ten years. A job may be snoozed without limit.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: delay} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// DiscardError is the error of [Discard].
type DiscardError struct {
	// Cause is the reason. It may be nil.
	Cause error
}

// Discard gives up on the job: it goes to the dead letters at once, even if it has attempts left. Use it for errors that no retry can fix.
// A job that shall leave no dead letter is cancelled, see [Client.Cancel].
func Discard(cause error) error { return &DiscardError{Cause: redact.Safe(cause)} }

// Error implements error: the text of the cause, because a dead letter says by its Reason how the job ended.
func (e *DiscardError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return "worker: discarded"
}

// Unwrap returns the cause.
func (e *DiscardError) Unwrap() error { return e.Cause }
