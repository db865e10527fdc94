package worker

import "time"

// Hooks observe a worker, for metrics and readiness. Each may be nil. They are called from the job's goroutine (Ready from the
// worker's), so they must be quick and must not block; a hook that panics takes the process down.
type Hooks struct {
	// Ready is called with true when the worker starts to pull and when it does so again after a break, and with false and the
	// reason when it cannot: once, and again when the worker finds a consumer, bucket or stream missing or changed.
	Ready func(ready bool, reason error)

	// Settled is called once an attempt's outcome is recorded, or known to be unknown. When a job is given back to be delivered
	// at once, the call for the next attempt may come first.
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

	// Ran is how long it has been running.
	Ran time.Duration

	// Stacks are the present stacks of its goroutine and of those that it started, at most 8 KiB.
	Stacks string
}

// Settlement is how an attempt ended.
type Settlement struct {
	Info

	// Delay is the wait before the next delivery of a job that was retried or snoozed.
	Delay time.Duration

	// Err is the handler's error, nil when it completed.
	Err error

	// Outcome is the outcome of the attempt.
	Outcome Outcome

	// Ran is how long the handler ran.
	Ran time.Duration

	// Waited is the time from when the stream stored the message until the handler started; on a later attempt it includes
	// the earlier ones. It compares the clocks of two machines, so it may be a little negative.
	Waited time.Duration
}

// Outcome is the outcome of an attempt.
type Outcome string

const (
	// OutcomeCancelled is a job that Client.Cancel removed before it ran, or while it ran.
	OutcomeCancelled Outcome = "cancelled"

	// OutcomeCompleted is a handler that returned nil, which the server confirmed.
	OutcomeCompleted Outcome = "completed"

	// OutcomeDead is a job that is in the dead letters.
	OutcomeDead Outcome = "dead"

	// OutcomeFenced is an attempt whose job and steps another attempt has taken over (see package step), or whose job was gone
	// from its stream. It was neither acknowledged nor given back.
	OutcomeFenced Outcome = "fenced"

	// OutcomeHandedBack is an attempt that does not count: a shutdown interrupted it, its permit was lost (see
	// [LimitLostError]), or it did not start because jobs of other priorities, or that had waited for a limit, had taken all
	// slots.
	OutcomeHandedBack Outcome = "handed_back"

	// OutcomeLimited is a job that was put off before it started, because a limit was reached and no more jobs could wait in
	// this worker. It uses no attempt.
	OutcomeLimited Outcome = "limited"

	// OutcomePaused is a job that was put off before it started, because its handler is paused, see [Client.Pause]. It uses no
	// attempt.
	OutcomePaused Outcome = "paused"

	// OutcomeReplaced is a job that did not run, since Client.Replace had put another job in its place before.
	OutcomeReplaced Outcome = "replaced"

	// OutcomeRetried is a failed attempt that another will follow.
	OutcomeRetried Outcome = "retried"

	// OutcomeSnoozed is a job that was put off without using an attempt.
	OutcomeSnoozed Outcome = "snoozed"

	// OutcomeUnknown is an outcome that the server did not confirm in time, so the job may be delivered again although its
	// handler may have completed.
	OutcomeUnknown Outcome = "unknown"
)

// Names of the events that a worker logs, as the message of the record. Every record carries "worker", "stream" and "consumer";
// those about a job also "job_id", "subject", "sequence" and "attempt".
const (
	// EventDeadFailed (error): a dead letter could not be published, or Policy.OnDeadLetter failed; the job stays. Field "error".
	EventDeadFailed = "worker.dead_letter_failed"

	// EventDrained (info): the worker was told to take no more jobs, or to take some again, see inspect.Drain. Field "drained".
	EventDrained = "worker.drained"

	// EventJobCancelled (info): a job that runs or waits here was cancelled by a client; its context ends. Without "attempt".
	EventJobCancelled = "worker.job_cancelled"

	// EventJobCopied (info): a job that this worker has acknowledged was delivered once more. It is acknowledged again and not
	// worked. Field "deliveries".
	EventJobCopied = "worker.job_copied"

	// EventJobDead (error): a job went to the dead letters. Fields "error", "reason".
	EventJobDead = "worker.job_dead"

	// EventJobFenced (warn): another attempt has taken over the job's steps, or the job is gone from its stream, so this one was
	// left. Field "error".
	EventJobFenced = "worker.job_fenced"

	// EventJobHandedBack (info): a shutdown, or the loss of a permit, gave the job back.
	EventJobHandedBack = "worker.job_handed_back"

	// EventJobLate (warn): a handler returned after its job had been handed back. Field "error".
	EventJobLate = "worker.job_late"

	// EventJobRetried (debug; warn before the last attempt): an attempt failed, and another will follow. Fields "error", "delay".
	EventJobRetried = "worker.job_retried"

	// EventJobStuck (error): a handler ignores its ended context. Fields "ran" and "stacks", those of its goroutines, at most
	// 8 KiB.
	EventJobStuck = "worker.job_stuck"

	// EventJobUnhandled (error): a message matches no handler here; it is put off. Field "delay".
	EventJobUnhandled = "worker.job_unhandled"

	// EventJobUnknown (warn): an outcome was not confirmed; the job may run again. Fields "outcome", "error".
	EventJobUnknown = "worker.job_unknown"

	// EventLimitFailed (warn): the records of limits could not be read or written, which is tried again. Field "error".
	EventLimitFailed = "worker.limit_failed"

	// EventLimitLost (warn): the lease of this worker's permits has ended, and with it the contexts of the handlers that run
	// under one. Field "error".
	EventLimitLost = "worker.limit_lost"

	// EventLimitUnreadable (error): the record of a limit cannot be decoded; the job is put off. Field "error".
	EventLimitUnreadable = "worker.limit_unreadable"

	// EventLost (warn): the worker cannot pull. Field "error".
	EventLost = "worker.lost"

	// EventProgressFailed (warn): the record of a job that runs, or waits again, could not be written. Field "error".
	EventProgressFailed = "worker.progress_failed"

	// EventReady (info): the worker pulls, for the first time or again.
	EventReady = "worker.ready"

	// EventRecordFailed (error): a unique job ended, and the stream does not take the record of it, so that its key is free at
	// once. Field "error".
	EventRecordFailed = "worker.record_failed"

	// EventReplayUnmarked (warn): the worker could not record that it has worked a replayed job. Field "error".
	EventReplayUnmarked = "worker.replay_unmarked"

	// EventStopped (info): Run is about to return.
	EventStopped = "worker.stopped"

	// EventStopping (info): no more jobs are taken. Field "running".
	EventStopping = "worker.stopping"

	// EventUncountedFailed (warn): an uncounted delivery could not be recorded, so it will count as an attempt, or the recorded
	// ones could not be read. Field "error".
	EventUncountedFailed = "worker.uncounted_failed"
)
