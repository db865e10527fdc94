package worker

import "time"

// Hooks observe a worker, for metrics and readiness. Each may be nil. They are called
// from the job's goroutine (Ready from the worker's), so they must be quick and must not
// block; a hook that panics takes the process down.
type Hooks struct {
	// Ready is called with true when the worker starts to pull and when it does so again
	// after a break, and with false and the reason when it cannot.
	Ready func(ready bool, reason error)

	// Settled is called once an attempt's outcome is recorded, or known to be unknown. When a
	// job is given back to be delivered at once, the call for the next attempt may come first.
	Settled func(Settlement)

	// Started is called right before a handler runs.
	Started func(Info)

	// Stuck is called once for a handler that ignores its ended context, see
	// Config.StuckAfter.
	Stuck func(StuckHandler)

	// Waiting is called with true when a job begins to wait here for a limit, and with false
	// when it does so no more.
	Waiting func(info Info, waits bool)
}

// StuckHandler is a handler that ignores its ended context.
type StuckHandler struct {
	Info

	// Ran is how long it has been running.
	Ran time.Duration

	// Stacks are the stacks of its goroutine and of those that it started, where they are
	// now, at most 8 KiB.
	Stacks string
}

// Settlement is how an attempt ended.
type Settlement struct {
	Info

	// Delay is the wait asked for when the job was retried or snoozed.
	Delay time.Duration

	// Err is what the handler returned, nil when it completed.
	Err error

	// Outcome says what was done with the job.
	Outcome Outcome

	// Ran is how long the handler ran.
	Ran time.Duration

	// Waited is the time from the message being stored (first delivery) to the handler's
	// start; both clocks count, so it may be a little negative across machines.
	Waited time.Duration
}

// Outcome is what became of an attempt.
type Outcome string

const (
	// OutcomeCancelled means: Client.Cancel took the job away, before it ran or while it did.
	OutcomeCancelled Outcome = "cancelled"

	// OutcomeCompleted means: the handler returned nil and the server confirmed it.
	OutcomeCompleted Outcome = "completed"

	// OutcomeDead means: the job is in the dead letters.
	OutcomeDead Outcome = "dead"

	// OutcomeFenced means: another attempt at the job has taken over its steps, and with
	// them the job. This one was neither acknowledged nor given back, see package step.
	OutcomeFenced Outcome = "fenced"

	// OutcomeHandedBack means: a shutdown interrupted the attempt, or its permit was lost (see
	// [LimitLostError]), and it does not count. Or the job came when the slots were taken by
	// those of other priorities, or that had waited for a limit, and did not start.
	OutcomeHandedBack Outcome = "handed_back"

	// OutcomeLimited means: the job was put off before it began, since a limit was reached and
	// no more could wait here. That uses no attempt.
	OutcomeLimited Outcome = "limited"

	// OutcomeReplaced means: Client.Replace had put another job in its place before it
	// started, so it did not run.
	OutcomeReplaced Outcome = "replaced"

	// OutcomeRetried means: the attempt failed and another will follow.
	OutcomeRetried Outcome = "retried"

	// OutcomeSnoozed means: the job was put off without using an attempt.
	OutcomeSnoozed Outcome = "snoozed"

	// OutcomeUnknown means: the server confirmed nothing in time, so the job may be delivered
	// again although its handler may have completed.
	OutcomeUnknown Outcome = "unknown"
)
