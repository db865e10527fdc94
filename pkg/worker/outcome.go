package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
)

// errOrphan is the reason that no answer is sent for a job whose consumer was deleted meanwhile.
var errOrphan = errors.New("worker: the consumer that delivered the job was deleted, and made again")

// outcome describes how to settle a job after an attempt.
type outcome struct {
	delay     time.Duration
	kind      Outcome
	reason    Reason // why it is dead
	settled   bool   // an earlier delivery was settled, and only its acknowledgement is missing
	uncounted bool   // the delivery uses no attempt
}

// classify derives the outcome from the error of an attempt. interrupted is true if the worker has ended the handler's context; wait is
// the backoff of the policy.
func classify(info Info, err error, interrupted bool, wait func(attempt int) time.Duration) outcome {
	if err == nil {
		return outcome{kind: OutcomeCompleted} // returned before the variables, which escape to the heap
	}
	var (
		cancel *CancelError
		decode *DecodeError
		ended  *endedError
		full   *limit.FullError
		fatal  *PanicError
		paused *pausedError
		retry  *RetryError
		snooze *SnoozeError
	)
	switch {
	case errors.Is(err, ErrCancelled):
		return outcome{kind: OutcomeCancelled, settled: true}
	case errors.As(err, &ended):
		return outcome{kind: ended.outcome, settled: true}
	case errors.Is(err, errGone):
		return outcome{kind: OutcomeFenced}
	case errors.As(err, &paused):
		return outcome{kind: OutcomePaused, delay: paused.delay, uncounted: true}
	case errors.As(err, &full):
		return outcome{kind: OutcomeLimited, delay: full.Delay, uncounted: true}
	case errors.Is(err, errLimitUnreadable):
		return outcome{kind: OutcomeLimited, delay: unhandledDelay, uncounted: true}
	case errors.Is(err, errRecordUnknown), errors.Is(err, errUnhandled):
		return outcome{kind: OutcomeSnoozed, delay: unhandledDelay, uncounted: true}
	case errors.As(err, &decode):
		return outcome{kind: OutcomeDead, reason: ReasonUndecodable}
	case errors.As(err, &cancel):
		return outcome{kind: OutcomeDead, reason: ReasonCancelled}
	case errors.As(err, &snooze):
		return outcome{kind: OutcomeSnoozed, delay: snooze.Delay, uncounted: true}
	case errors.Is(err, errNotStarted):
		return outcome{kind: OutcomeHandedBack, uncounted: true}
	case interrupted && !errors.As(err, &fatal) && !errors.Is(err, ErrGoexit) && !errors.As(err, &retry):
		return outcome{kind: OutcomeHandedBack, uncounted: true}
	case info.Attempt >= info.MaxAttempts:
		return outcome{kind: OutcomeDead, reason: ReasonExhausted}
	case errors.As(err, &retry):
		return outcome{kind: OutcomeRetried, delay: retry.After}
	default:
		return outcome{kind: OutcomeRetried, delay: wait(info.Attempt)}
	}
}

// finish settles a job whose handler has returned.
func (w *Worker) finish(d *delivery, err error) {
	ended := time.Now()
	if !w.deliveries.claim(d) {
		w.log.Warn(EventJobLate, append(d.attrs(), "error", err)...)
		return
	}
	o, err := w.decide(d, err)
	o.kind = w.settle(d, o, err)
	w.report(d, o, err, ended)
}

// decide returns the outcome of an attempt that returned err, and the error to report.
func (w *Worker) decide(d *delivery, err error) (outcome, error) {
	if w.mayBeOthers(d) { // an answer could settle the other worker's delivery, or make the server deliver the job again
		return outcome{kind: OutcomeFenced}, errors.Join(errDoubted, err)
	}
	if d.journal != nil {
		if fenced := d.journal.Fenced(); fenced != nil { // whatever the handler returned
			return outcome{kind: OutcomeFenced}, fenced
		}
	}
	o := classify(d.info, err, w.jobs.Err() != nil || d.permitLost.Load(), d.policy.nextDelay)
	if o.settled && o.kind != OutcomeDead {
		err = nil
	}
	return o, err
}

// settle carries out an outcome and returns the outcome that was reached.
func (w *Worker) settle(d *delivery, o outcome, err error) Outcome {
	switch {
	case o.settled:
		return w.confirm(d, o.kind)
	case o.kind == OutcomeCompleted:
		return w.complete(d)
	case o.kind == OutcomeFenced:
		return w.leave(d, o)
	case o.kind != OutcomeDead:
		return w.release(d, o)
	}
	if failed := w.deadLetter(d, o.reason, err); failed != nil {
		w.log.Error(EventDeadFailed, append(d.attrs(), "error", w.denial(failed))...)
		w.release(d, outcome{delay: unhandledDelay})
		return OutcomeUnknown
	}
	if !w.recordEnd(d, StateDead) {
		return OutcomeUnknown
	}
	return w.confirm(d, o.kind)
}

// complete records that a job is done, acknowledges it and forgets its steps.
func (w *Worker) complete(d *delivery) Outcome {
	if !w.recordEnd(d, StateDone) {
		return OutcomeUnknown
	}
	reached := w.confirm(d, OutcomeCompleted)
	if reached == OutcomeCompleted && d.journal != nil {
		d.journal.Forget()
	}
	return reached
}

// confirm acknowledges a job until the server confirms it. Acknowledgements can be repeated without harm, under the newest delivery.
// Heartbeats go on meanwhile, so the job is not started elsewhere while the server can be reached. The job of a dead letter is
// acknowledged as well, not terminated: its letter has more than the server's advisory.
func (w *Worker) confirm(d *delivery, kind Outcome) Outcome {
	w.recordReplay(d)
	if !w.acknowledge(d, kind) {
		return OutcomeUnknown
	}
	d.acked = true
	return kind
}

// reack acknowledges a copy of a job that this worker has acknowledged before.
func (w *Worker) reack(d *delivery) {
	defer w.running.Done()
	w.log.Info(EventJobCopied, append(d.attrs(), "deliveries", d.info.Deliveries)...)
	w.acknowledge(d, OutcomeUnknown)
}

// acknowledge reports whether the server has confirmed the acknowledgement.
func (w *Worker) acknowledge(d *delivery, kind Outcome) bool {
	until := time.Now().Add(w.cfg.SettleTimeout)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		reply := w.deliveries.answerTo(d)
		err := w.answer(d, reply, ackDone)
		if err == nil {
			w.acks.add(ack{consumer: d.info.Consumer, created: w.classOf(d.info.Consumer).created.Load(), reply: reply})
			return true
		}
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, errOrphan) || !sleepUntil(w.settling, wait, until) || w.mayBeOthers(d) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", kind, "error", w.denial(err))...)
			return false
		}
	}
}

// release gives a job back to the server, to be delivered again after a delay. The uncounted deliveries are recorded before: after a crash
// in between, a delivery is uncounted whose job did nothing more.
//
// The answer is sent once only. A repeated answer could settle the job's next delivery, which runs on another worker. When the answer was
// lost, the job comes back after AckWait instead.
func (w *Worker) release(d *delivery, o outcome) Outcome {
	w.showWaiting(d)
	reply, extra := w.deliveries.release(d)
	uncounted := extra // copies that were dropped here because the job was running
	if o.uncounted {
		uncounted++
	}
	if uncounted > 0 {
		w.recordUncounted(d, uncounted, extra, o.delay)
	}
	if w.mayBeOthers(d) { // by now
		return OutcomeFenced
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
	if w.deliveries.redelivered(d) && !w.mayBeOthers(d) {
		return w.release(d, o)
	}
	w.deliveries.release(d)
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

// recordUncounted records that n deliveries of a job use no attempt.
func (w *Worker) recordUncounted(d *delivery, n, extra int, delay time.Duration) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.AckWait)
	defer cancel()
	err := retry(ctx, firstWait, isConnected, func() error {
		once, stop := context.WithTimeout(ctx, w.cfg.RequestTimeout)
		defer stop()
		return w.uncounted.Add(once, d.uncountedKey(), d.first+extra, n, delay)
	})
	if err != nil {
		w.log.Warn(EventUncountedFailed, append(d.attrs(), "error", w.denial(err))...)
	}
}

// recordReplay records, before a replayed job leaves its stream, that the job has been worked. If the replay was interrupted after it
// published the job and before it removed the letter, only this record shows a later replay that the job was published.
//
// The server accepts this record only while the record of the replay is the last on its subject. That one is removed together with the
// letter, so as a rule the server refuses this record and nothing is left.
func (w *Worker) recordReplay(d *delivery) {
	record := d.msg.Header.Get(HeaderReplayRecord)
	if record == "" {
		return
	}
	replay, err := strconv.ParseUint(record, 10, 64)
	if err != nil || replay == 0 {
		return
	}
	_, letter, _ := strings.Cut(d.msg.Header.Get(HeaderReplayOf), ":")
	if _, err = strconv.ParseUint(letter, 10, 64); err != nil {
		return
	}
	msg := nats.NewMsg(fmt.Sprintf("%s.%s.%s.%s", w.cfg.DeadSubject, d.info.Stream, TokenReplay, letter))
	msg.Header.Set(HeaderReplayState, ReplayWorked)
	const tries = 2
	for range tries {
		ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
		_, err = w.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(replay))
		cancel()
		var refused *jetstream.APIError
		if err == nil || errors.As(err, &refused) {
			return
		}
	}
	w.log.Warn(EventReplayUnmarked, append(d.attrs(), "error", w.denial(err))...)
}

// report logs an outcome and calls the hook.
func (w *Worker) report(d *delivery, o outcome, err error, ended time.Time) {
	switch {
	case errors.Is(err, errUnhandled):
		w.log.Error(EventJobUnhandled, append(d.attrs(), "delay", o.delay)...)
	case errors.Is(err, errLimitUnreadable):
		w.log.Error(EventLimitUnreadable, append(d.attrs(), "error", err)...)
	case o.kind == OutcomeDead:
		w.log.Error(EventJobDead, append(d.attrs(), "error", err, "reason", o.reason)...)
	case o.kind == OutcomeFenced:
		w.log.Warn(EventJobFenced, append(d.attrs(), "error", err)...)
	case o.kind == OutcomeRetried && d.info.Attempt+1 < d.info.MaxAttempts:
		w.log.Debug(EventJobRetried, append(d.attrs(), "error", err, "delay", o.delay)...)
	case o.kind == OutcomeRetried:
		w.log.Warn(EventJobRetried, append(d.attrs(), "error", err, "delay", o.delay)...)
	case o.kind == OutcomeHandedBack:
		w.log.Info(EventJobHandedBack, d.attrs()...)
	}
	if !d.started.IsZero() || o.kind == OutcomeDead { // an attempt that ended before its handler does not count, unless its job was given up
		w.recent.add(d.describeEnd(o, err, ended))
	}
	if w.cfg.Hooks.Settled == nil {
		return
	}
	s := Settlement{Info: d.info, Delay: o.delay, Err: err, Outcome: o.kind}
	if !d.started.IsZero() {
		s.Ran, s.Waited = ended.Sub(d.started), d.started.Sub(d.info.EnqueuedAt)
	}
	w.cfg.Hooks.Settled(s)
}

// RetryError is the error of [Retry].
type RetryError struct {
	// After is the exact wait before the next attempt: without backoff and jitter.
	After time.Duration

	// Cause is the reason. It may be nil.
	Cause error
}

// Retry fails this attempt and asks for the next one after the given wait, instead of the policy's backoff. Use it when a
// provider answered with the time of the next call. A negative wait counts as zero. After the last attempt the job goes to
// the dead letters all the same.
func Retry(after time.Duration, cause error) error {
	return &RetryError{After: max(after, 0), Cause: cause}
}

// Error implements error.
func (e *RetryError) Error() string {
	return withCause(fmt.Sprintf("worker: retry after %s", e.After), e.Cause)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// SnoozeError is the error of [Snooze].
type SnoozeError struct {
	// Delay is the wait before the job is delivered again.
	Delay time.Duration
}

// Snooze puts the job off without using an attempt: the next delivery has the same Job.Attempt. It costs two round trips more
// than [Retry]. A negative delay counts as zero. A job may be snoozed without limit.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: max(delay, 0)} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// CancelError is the error of [Cancel].
type CancelError struct {
	// Cause is the reason. It may be nil.
	Cause error
}

// Cancel gives the job up: the job goes to the dead letters at once, even if it has attempts left. Use it for errors that no retry can
// mend.
func Cancel(cause error) error { return &CancelError{Cause: cause} }

// Error implements error.
func (e *CancelError) Error() string { return withCause("worker: cancelled", e.Cause) }

// Unwrap returns the cause.
func (e *CancelError) Unwrap() error { return e.Cause }

func withCause(text string, cause error) string {
	if cause == nil {
		return text
	}
	return text + ": " + cause.Error()
}
