package worker

import "time"

// Hooks observe a worker, for metrics and readiness. Each may be nil. They are called
// from the job's goroutine (Ready from the worker's), so they must be quick and must not
// block; a hook that panics takes the process down.
type Hooks struct {
	// Ready is called with true when the worker starts to pull and when it does so again
	// after a break, and with false and the reason when it cannot.
	Ready func(ready bool, reason error)

	// Settled is called once an attempt's outcome is recorded, or known to be unknown.
	Settled func(Settlement)

	// Started is called right before a handler runs.
	Started func(Info)

	// Stuck is called once for a handler that ignores its ended context, see
	// Config.StuckAfter.
	Stuck func(Info)
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
	// OutcomeCompleted means: the handler returned nil and the server confirmed it.
	OutcomeCompleted Outcome = "completed"

	// OutcomeDead means: the job is in the dead letters.
	OutcomeDead Outcome = "dead"

	// OutcomeHandedBack means: a shutdown interrupted the attempt, which does not count.
	OutcomeHandedBack Outcome = "handed_back"

	// OutcomeRetried means: the attempt failed and another will follow.
	OutcomeRetried Outcome = "retried"

	// OutcomeSnoozed means: the job was put off without using an attempt.
	OutcomeSnoozed Outcome = "snoozed"

	// OutcomeUnknown means: the server confirmed nothing in time, so the job may be delivered
	// again although its handler may have completed.
	OutcomeUnknown Outcome = "unknown"
)
