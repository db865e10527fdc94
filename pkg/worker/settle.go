package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// verdict is what to do with a job after an attempt.
type verdict struct {
	delay   time.Duration
	excuse  bool // the delivery uses no attempt
	outcome Outcome
	reason  Reason // why it is dead
}

// judge decides from the error of an attempt. interrupted says that the worker had ended
// the handler's context because it stops; backoff is the policy's wait.
func judge(info Info, err error, interrupted bool, backoff func(attempt int) time.Duration) verdict {
	var (
		cancel *CancelError
		decode *DecodeError
		fatal  *PanicError
		retry  *RetryError
		snooze *SnoozeError
	)

	switch {
	case err == nil:
		return verdict{outcome: OutcomeCompleted}
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

	v := judge(d.info, err, w.jobs.Err() != nil, d.policy.nextDelay)
	v.outcome = w.settle(d, v, err)

	w.report(d, v, err, ended)
}

// settle carries out a verdict and returns what came of it.
func (w *Worker) settle(d *delivery, v verdict, err error) Outcome {
	switch v.outcome {
	case OutcomeCompleted:
		return w.confirm(d, v.outcome)
	case OutcomeDead:
		if failed := w.bury(d, v.reason, err); failed != nil {
			w.log.Error(EventDeadFailed, append(d.attrs(), "error", failed)...)
			w.release(d, verdict{delay: unhandledDelay})

			return OutcomeUnknown
		}

		return w.confirm(d, v.outcome)
	default:
		return w.release(d, v)
	}
}

// confirm acknowledges a job until the server confirms it. That can be repeated without
// harm, under whichever delivery is the newest. Heartbeats go on meanwhile, so the job is
// not started elsewhere while the server can be reached. A dead letter's job is
// acknowledged as well, not terminated: its letter says more than the server's advisory.
func (w *Worker) confirm(d *delivery, outcome Outcome) Outcome {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := w.answer(w.table.answer(d), ackDone)
		if err == nil {
			return outcome
		}

		if errors.Is(err, nats.ErrConnectionClosed) || !sleep(ctx, wait) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", outcome, "error", err)...)

			return OutcomeUnknown
		}
	}
}

// release gives a job back to the server, to be delivered again after a delay. The excuse
// is recorded before: a crash in between excuses a delivery whose job did nothing more.
//
// The answer is sent once only. One that is repeated could hit the job's next delivery,
// running on another worker. When it was lost the job comes back after AckWait instead.
func (w *Worker) release(d *delivery, v verdict) Outcome {
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

	if err := w.answer(reply, answer); err != nil {
		w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", v.outcome, "error", err)...)

		return OutcomeUnknown
	}

	return v.outcome
}

// answer sends an answer to a delivery and waits for the server to confirm it.
func (w *Worker) answer(reply, answer string) error {
	// Not Conn.Request: its timers come from a pool of the process, which cannot be used
	// under fake time.
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()

	if _, err := w.nc.RequestWithContext(ctx, reply, []byte(answer)); err != nil {
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

	w.log.Warn(EventExcuseFailed, append(d.attrs(), "error", err)...)
}

// report logs an outcome and calls the hook.
func (w *Worker) report(d *delivery, v verdict, err error, ended time.Time) {
	switch {
	case errors.Is(err, errUnhandled):
		w.log.Error(EventJobUnhandled, append(d.attrs(), "delay", v.delay)...)
	case v.outcome == OutcomeDead:
		w.log.Error(EventJobDead, append(d.attrs(), "error", err, "reason", v.reason)...)
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
