package worker

import (
	"time"
)

// Hooks observe a worker, for metrics and readiness. Each may be nil. The worker waits for them, so they must be quick and must not block.
// A panic of a hook is logged ("callback panicked"), and changes nothing.
type Hooks struct {
	// Paused is called with the number of patterns whose jobs do not start, see [Client.Pause], at first and when it changes.
	Paused func(patterns int)

	// Ready is called with true when the worker starts to pull, at first and after a break. It is called with false and the reason when the
	// worker cannot pull, or when the stream or a consumer no longer has the jobs of a handler, which it notices within 30 seconds. It is
	// called again when the reason turns out to need an operator, and after 1 minute, 2 more, 4 more and so on, up to an hour.
	Ready func(ready bool, reason error)

	// Settled is called when an attempt's outcome is recorded, or will stay unknown. When a job is given back to be delivered at once, the
	// call for the next attempt may come first.
	Settled func(Settlement)

	// Started is called right before a handler runs.
	Started func(Info)

	// Stuck is called once for a handler that ignores its ended context, see Config.StuckAfter.
	Stuck func(StuckHandler)

	// Waiting is called with true when a job begins to wait here for a limit, and with false when the wait ends.
	Waiting func(info Info, waits bool)
}

// StuckHandler is a handler that ignores its ended context.
type StuckHandler struct {
	Info

	// Ran is the time for which the handler has been running.
	Ran time.Duration

	// Stacks are the present stacks of the handler's goroutine and of those that it started, at most 8 KiB.
	Stacks string
}

// Settlement is the end of an attempt.
type Settlement struct {
	Info

	// Delay is the wait before the next delivery of a job that was retried or snoozed.
	Delay time.Duration

	// Err is the handler's error, nil when it completed.
	Err error

	// Outcome is the outcome of the attempt.
	Outcome Outcome

	// Ran is the time for which the handler ran.
	Ran time.Duration

	// Waited is the time between the storing of the message in the stream and the start of the handler; on a later attempt it includes the
	// earlier attempts. It compares the clocks of two machines, so it may be a little negative.
	Waited time.Duration
}

// Outcome is the outcome of an attempt.
type Outcome string

const (
	// OutcomeCancelled means that Client.Cancel removed the job before or while it ran.
	OutcomeCancelled Outcome = "cancelled"

	// OutcomeCompleted means that the handler returned nil, and the server confirmed that.
	OutcomeCompleted Outcome = "completed"

	// OutcomeDead means that the job is in the dead letters.
	OutcomeDead Outcome = "dead"

	// OutcomeFenced means that another attempt has taken over the job and its steps (see package step), or the job was gone from its
	// stream. The job was neither acknowledged nor given back.
	OutcomeFenced Outcome = "fenced"

	// OutcomeHandedBack means that the attempt does not count. A shutdown interrupted it, its permit was lost (see [LimitLostError]), or
	// it did not start because jobs of other priorities, or jobs that had waited for a limit, had taken all slots.
	OutcomeHandedBack Outcome = "handed_back"

	// OutcomeLimited means that the job was put off before it started, because a limit was reached and no more jobs could wait in this
	// worker. It uses no attempt.
	OutcomeLimited Outcome = "limited"

	// OutcomePaused means that the job was put off before it started, because its handler is paused, see [Client.Pause]. It uses no attempt.
	OutcomePaused Outcome = "paused"

	// OutcomeRetried means that the attempt failed, and another will follow.
	OutcomeRetried Outcome = "retried"

	// OutcomeSnoozed means that the job was put off without using an attempt.
	OutcomeSnoozed Outcome = "snoozed"

	// OutcomeUnknown means that the server did not confirm the outcome in time, so the job may be delivered again although its handler may
	// have completed.
	OutcomeUnknown Outcome = "unknown"
)

// Names of the events that a worker logs, as the message of the record. Every record carries "worker", "stream" and "consumer";
// those about a job also "job_id", "subject", "sequence" and "attempt".
const (
	// EventDeadFailed (error): a dead letter could not be published, or Policy.OnDeadLetter failed; the job stays. Field "error".
	EventDeadFailed = "worker.dead_letter_failed"

	// EventDrained (info): the worker was told to take no more jobs, or to take jobs again, see inspect.Drain. Field "drained".
	EventDrained = "worker.drained"

	// EventJobCancelled (info): a client cancelled a job that runs or waits here; its context ends. Without "attempt".
	EventJobCancelled = "worker.job_cancelled"

	// EventJobCopied (info): a job that this worker has acknowledged was delivered once more. It is acknowledged again and not
	// worked. Field "deliveries".
	EventJobCopied = "worker.job_copied"

	// EventJobDead (error): a job went to the dead letters. Fields "error", "reason".
	EventJobDead = "worker.job_dead"

	// EventJobFenced (warn): another attempt has taken over the job's steps, or the job is gone from its stream, so this attempt ended. Field
	// "error".
	EventJobFenced = "worker.job_fenced"

	// EventJobHandedBack (info): a shutdown, or the loss of a permit, gave the job back.
	EventJobHandedBack = "worker.job_handed_back"

	// EventJobLate (warn): a handler returned after its job had been handed back. Field "error".
	EventJobLate = "worker.job_late"

	// EventJobRetried (debug, or warn): an attempt failed, and another will follow. Fields "error", "delay". The first failure of each kind
	// of a handler is a warning, and then one each minute; "failures" is the number since the last. Of texts with the
	// same words, ids left out, four a second count.
	EventJobRetried = "worker.job_retried"

	// EventJobStuck (error): a handler ignores its ended context. Fields "ran", and "stacks" of its goroutines, at most 8 KiB.
	EventJobStuck = "worker.job_stuck"

	// EventJobUnhandled (error): a message matches no handler here; it is put off. Field "delay".
	EventJobUnhandled = "worker.job_unhandled"

	// EventJobUnknown (warn): an outcome was not confirmed; the job may run again. Fields "outcome", "error".
	EventJobUnknown = "worker.job_unknown"

	// EventLimitFailed (warn): the records of limits could not be read or written; the worker tries again. Field "error".
	EventLimitFailed = "worker.limit_failed"

	// EventLimitLost (warn): the lease of this worker's permits has ended, and with it the contexts of the handlers that run under a permit.
	// Field "error".
	EventLimitLost = "worker.limit_lost"

	// EventLimitUnreadable (error): the record of a limit cannot be decoded; the job is put off. Field "error".
	EventLimitUnreadable = "worker.limit_unreadable"

	// EventLost (warn): the worker cannot pull, or gets no jobs of a handler. It is repeated, see Hooks.Ready. Field "error".
	EventLost = "worker.lost"

	// EventProgressFailed (warn): the record of a job that runs, or waits again, could not be written. Field "error".
	EventProgressFailed = "worker.progress_failed"

	// EventReady (info): the worker pulls, for the first time or again.
	EventReady = "worker.ready"

	// EventRecordFailed (error): a unique job ended, but the stream does not take the job's record, so its key is free at once. Field
	// "error".
	EventRecordFailed = "worker.record_failed"

	// EventReplayUnmarked (warn): the worker could not record that it has worked a replayed job. Field "error".
	EventReplayUnmarked = "worker.replay_unmarked"

	// EventStopped (info): Run is about to return.
	EventStopped = "worker.stopped"

	// EventStopping (info): no more jobs are taken. Field "running".
	EventStopping = "worker.stopping"

	// EventUncountedFailed (warn): an uncounted delivery could not be recorded, so it will count as an attempt, or the error of an attempt
	// could not, so no dead letter will have it, or the records could not be read. Field "error".
	EventUncountedFailed = "worker.uncounted_failed"
)
