package worker

// Names of the events a worker logs, as the message of the record. Every record carries
// "worker", "stream" and "consumer"; those about a job also "job_id", "subject",
// "sequence" and "attempt".
const (
	// EventDeadFailed (error): a dead letter could not be published; the job stays.
	EventDeadFailed = "worker.dead_letter_failed"

	// EventExcuseFailed (warn): a delivery that should not count could not be recorded,
	// so it will count as an attempt. Field "error".
	EventExcuseFailed = "worker.excuse_failed"

	// EventJobDead (error): a job went to the dead letters. Fields "error", "reason".
	EventJobDead = "worker.job_dead"

	// EventJobHandedBack (info): a shutdown gave the job back.
	EventJobHandedBack = "worker.job_handed_back"

	// EventJobLate (warn): a handler returned after its job had been handed back.
	EventJobLate = "worker.job_late"

	// EventJobRetried (warn): an attempt failed. Fields "error", "delay".
	EventJobRetried = "worker.job_retried"

	// EventJobStuck (error): a handler ignores its ended context. Field "ran".
	EventJobStuck = "worker.job_stuck"

	// EventJobUnhandled (error): a message matches no handler here; it is put off.
	EventJobUnhandled = "worker.job_unhandled"

	// EventJobUnknown (warn): an outcome was not confirmed; the job may run again. Fields
	// "outcome", "error".
	EventJobUnknown = "worker.job_unknown"

	// EventLost (warn): the worker cannot pull. Field "error".
	EventLost = "worker.lost"

	// EventReady (info): the worker pulls, for the first time or again.
	EventReady = "worker.ready"

	// EventStopped (info): Run is about to return.
	EventStopped = "worker.stopped"

	// EventStopping (info): no more jobs are taken. Field "running".
	EventStopping = "worker.stopping"
)
