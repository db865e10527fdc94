package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/limit"
)

// errOrphan is why a job is not answered for whose consumer was deleted meanwhile.
var errOrphan = errors.New("worker: the consumer that delivered the job was deleted, and made again")

// verdict is what to do with a job after an attempt.
type verdict struct {
	delay   time.Duration
	excuse  bool // the delivery uses no attempt
	outcome Outcome
	reason  Reason // why it is dead
	settled bool   // an earlier delivery came this far, only its acknowledgement is missing
}

// judge decides from the error of an attempt. interrupted says that the worker had ended
// the handler's context because it stops; backoff is the policy's wait.
func judge(info Info, err error, interrupted bool, backoff func(attempt int) time.Duration) verdict {
	var (
		cancel *CancelError
		decode *DecodeError
		ended  *endedError
		full   *limit.FullError
		fatal  *PanicError
		retry  *RetryError
		snooze *SnoozeError
	)

	switch {
	case err == nil:
		return verdict{outcome: OutcomeCompleted}
	case errors.Is(err, ErrCancelled):
		return verdict{outcome: OutcomeCancelled, settled: true}
	case errors.As(err, &ended):
		return verdict{outcome: ended.outcome, settled: true}
	case errors.Is(err, errReplaced):
		return verdict{outcome: OutcomeReplaced, settled: true}
	case errors.As(err, &full):
		return verdict{outcome: OutcomeLimited, delay: full.Delay, excuse: true}
	case errors.Is(err, errUnreadable):
		return verdict{outcome: OutcomeLimited, delay: unhandledDelay, excuse: true}
	case errors.Is(err, errForgetful):
		return verdict{outcome: OutcomeSnoozed, delay: unhandledDelay, excuse: true}
	case errors.As(err, &decode):
		return verdict{outcome: OutcomeDead, reason: ReasonUndecodable}
	case errors.As(err, &cancel):
		return verdict{outcome: OutcomeDead, reason: ReasonCancelled}
	case errors.As(err, &snooze):
		return verdict{outcome: OutcomeSnoozed, delay: snooze.Delay, excuse: true}
	case errors.Is(err, errUnhandled):
		return verdict{outcome: OutcomeSnoozed, delay: unhandledDelay, excuse: true}
	case errors.Is(err, errNotStarted):
		return verdict{outcome: OutcomeHandedBack, excuse: true}
	case interrupted && !errors.As(err, &fatal) && !errors.Is(err, ErrGoexit) && !errors.As(err, &retry):
		return verdict{outcome: OutcomeHandedBack, excuse: true}
	case info.Attempt >= info.MaxAttempts:
		return verdict{outcome: OutcomeDead, reason: ReasonExhausted}
	case errors.As(err, &retry):
		return verdict{outcome: OutcomeRetried, delay: retry.After}
	default:
		return verdict{outcome: OutcomeRetried, delay: backoff(info.Attempt)}
	}
}

// finish records the outcome of an attempt whose handler has returned.
func (w *Worker) finish(d *delivery, err error) {
	ended := time.Now()

	if !w.table.claim(d) {
		w.log.Warn(EventJobLate, append(d.attrs(), "error", err)...)

		return
	}

	defer func() { d.asking.End() }()

	v := judge(d.info, err, w.jobs.Err() != nil || d.dispossessed(), d.policy.nextDelay)
	if v.settled && v.outcome != OutcomeDead {
		err = nil
	}

	if fenced := d.fenced(); fenced != nil { // whatever the handler made of it
		v, err = verdict{outcome: OutcomeFenced}, fenced
	}

	v.outcome = w.settle(d, v, err)

	w.report(d, v, err, ended)
}

// settle carries out a verdict and returns what came of it.
func (w *Worker) settle(d *delivery, v verdict, err error) Outcome {
	switch {
	case v.settled:
		return w.confirm(d, v.outcome)
	case v.outcome == OutcomeCompleted:
		return w.complete(d)
	case v.outcome == OutcomeFenced:
		return w.leave(d, v)
	case v.outcome == OutcomeDead:
		if failed := w.bury(d, v.reason, err); failed != nil {
			w.log.Error(EventDeadFailed, append(d.attrs(), "error", w.denial(failed))...)
			w.release(d, verdict{delay: unhandledDelay})

			return OutcomeUnknown
		}

		if !w.record(d, StateDead) {
			return OutcomeUnknown
		}

		return w.confirm(d, v.outcome)
	default:
		return w.release(d, v)
	}
}

// complete records that a job is done, acknowledges it and forgets its steps.
func (w *Worker) complete(d *delivery) Outcome {
	if !w.record(d, StateDone) {
		return OutcomeUnknown
	}

	outcome := w.confirm(d, OutcomeCompleted)
	if outcome == OutcomeCompleted && d.journal != nil {
		d.journal.Forget()
	}

	return outcome
}

// confirm acknowledges a job until the server confirms it. That can be repeated without
// harm, under whichever delivery is the newest. Heartbeats go on meanwhile, so the job is
// not started elsewhere while the server can be reached. A dead letter's job is
// acknowledged as well, not terminated: its letter says more than the server's advisory.
func (w *Worker) confirm(d *delivery, outcome Outcome) Outcome {
	w.markWorked(d)

	if !w.acknowledge(d, outcome) {
		return OutcomeUnknown
	}

	d.acked = true

	return outcome
}

// again acknowledges a copy of a job that this worker has acknowledged before.
func (w *Worker) again(d *delivery) {
	defer w.running.Done()
	defer func() { d.asking.End() }()

	w.log.Info(EventJobCopied, append(d.attrs(), "deliveries", d.info.Deliveries)...)
	w.acknowledge(d, OutcomeUnknown)
}

// acknowledge reports whether the server has confirmed it.
func (w *Worker) acknowledge(d *delivery, outcome Outcome) bool {
	until := time.Now().Add(w.cfg.SettleTimeout)

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		reply := w.table.answer(d)

		err := w.answer(d, reply, ackDone)
		if err == nil {
			w.acks.add(confirmedAck{consumer: d.info.Consumer, created: w.classOf(d.info.Consumer).created.Load(), reply: reply})

			return true
		}

		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, errOrphan) || !sleepUntil(w.settling, wait, until) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", outcome, "error", w.denial(err))...)

			return false
		}
	}
}

// release gives a job back to the server, to be delivered again after a delay. The excuse
// is recorded before: a crash in between excuses a delivery whose job did nothing more.
//
// The answer is sent once only. One that is repeated could hit the job's next delivery,
// running on another worker. When it was lost the job comes back after AckWait instead.
func (w *Worker) release(d *delivery, v verdict) Outcome {
	w.showWaiting(d)
	w.unmark(d) // while it waits it may be replaced

	reply, extra := w.table.release(d)

	excused := extra // copies that were dropped here because the job was running
	if v.excuse {
		excused++
	}

	if excused > 0 {
		w.excuse(d, excused, extra, v.delay)
	}

	answer := ackLater
	if v.delay > 0 {
		answer = fmt.Sprintf("%s {\"delay\": %d}", ackLater, v.delay.Nanoseconds())
	}

	if err := w.answer(d, reply, answer); err != nil {
		w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", v.outcome, "error", w.denial(err))...)

		return OutcomeUnknown
	}

	return v.outcome
}

// answer sends an answer to a delivery and waits for the server to confirm it.
func (w *Worker) answer(d *delivery, reply, answer string) error {
	// Not Conn.Request: its timers come from a pool of the process, which cannot be used
	// under fake time.
	if reply == "" {
		return errOrphan
	}

	requests := d.requests(w)
	defer requests.Pause()

	if _, err := w.nc.RequestWithContext(requests.Begin(), reply, []byte(answer)); err != nil {
		return fmt.Errorf("worker: %s: %w", answer, err)
	}

	return nil
}

func (w *Worker) excuse(d *delivery, n, extra int, delay time.Duration) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.AckWait)
	defer cancel()

	var err error

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		once, stop := context.WithTimeout(ctx, w.cfg.RequestTimeout)
		err = w.excuses.Add(once, d.key(), d.first+extra, n, delay)

		stop()

		if err == nil {
			return
		}

		if errors.Is(err, nats.ErrConnectionClosed) || !sleep(ctx, wait) {
			break
		}
	}

	w.log.Warn(EventExcuseFailed, append(d.attrs(), "error", w.denial(err))...)
}

// report logs an outcome and calls the hook.
func (w *Worker) report(d *delivery, v verdict, err error, ended time.Time) {
	switch {
	case errors.Is(err, errUnhandled):
		w.log.Error(EventJobUnhandled, append(d.attrs(), "delay", v.delay)...)
	case errors.Is(err, errUnreadable):
		w.log.Error(EventLimitUnreadable, append(d.attrs(), "error", err)...)
	case v.outcome == OutcomeDead:
		w.log.Error(EventJobDead, append(d.attrs(), "error", err, "reason", v.reason)...)
	case v.outcome == OutcomeFenced:
		w.log.Warn(EventJobFenced, append(d.attrs(), "error", err)...)
	case v.outcome == OutcomeRetried:
		w.log.Warn(EventJobRetried, append(d.attrs(), "error", err, "delay", v.delay)...)
	case v.outcome == OutcomeHandedBack:
		w.log.Info(EventJobHandedBack, d.attrs()...)
	}

	if w.cfg.Hooks.Settled == nil {
		return
	}

	s := Settlement{Info: d.info, Delay: v.delay, Err: err, Outcome: v.outcome}
	if !d.started.IsZero() {
		s.Ran, s.Waited = ended.Sub(d.started), d.started.Sub(d.info.EnqueuedAt)
	}

	w.cfg.Hooks.Settled(s)
}
