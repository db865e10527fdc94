package worker

// Names of the events a worker logs, as the message of the record. Every record carries
// "worker", "stream" and "consumer"; those about a job also "job_id", "subject",
// "sequence" and "attempt".
const (
	// EventDeadFailed (error): a dead letter could not be published, or Policy.Bury failed; the job stays.
	EventDeadFailed = "worker.dead_letter_failed"

	// EventExcuseFailed (warn): a delivery that should not count could not be recorded,
	// so it will count as an attempt. Field "error".
	EventExcuseFailed = "worker.excuse_failed"

	// EventJobCancelled (info): a running job was cancelled by a client; its context ends.
	EventJobCancelled = "worker.job_cancelled"

	// EventJobCopied (info): a job that this worker has acknowledged was delivered once more.
	// It is acknowledged again and not worked. Field "deliveries".
	EventJobCopied = "worker.job_copied"

	// EventJobDead (error): a job went to the dead letters. Fields "error", "reason".
	EventJobDead = "worker.job_dead"

	// EventJobFenced (warn): another attempt has taken over the job's steps, so this one was
	// left. Field "error".
	EventJobFenced = "worker.job_fenced"

	// EventJobHandedBack (info): a shutdown, or the loss of a permit, gave the job
	// back.
	EventJobHandedBack = "worker.job_handed_back"

	// EventJobLate (warn): a handler returned after its job had been handed back.
	EventJobLate = "worker.job_late"

	// EventJobRetried (warn): an attempt failed. Fields "error", "delay".
	EventJobRetried = "worker.job_retried"

	// EventJobStuck (error): a handler ignores its ended context. Fields "ran" and
	// "stacks", where its goroutines are, at most 8 KiB.
	EventJobStuck = "worker.job_stuck"

	// EventJobUnhandled (error): a message matches no handler here; it is put off.
	EventJobUnhandled = "worker.job_unhandled"

	// EventJobUnknown (warn): an outcome was not confirmed; the job may run again. Fields
	// "outcome", "error".
	EventJobUnknown = "worker.job_unknown"

	// EventLimitFailed (warn): what is stored of limits could not be read or written, which is
	// tried again. Field "error".
	EventLimitFailed = "worker.limit_failed"

	// EventLimitLost (warn): the lease of this worker's permits has ended, and with it the
	// contexts of the handlers that run under one. Field "error".
	EventLimitLost = "worker.limit_lost"

	// EventLimitUnreadable (error): the record of a limit cannot be decoded; the job is put
	// off. Field "error".
	EventLimitUnreadable = "worker.limit_unreadable"

	// EventLost (warn): the worker cannot pull. Field "error".
	EventLost = "worker.lost"

	// EventProgressFailed (warn): that a job runs, or waits again, could not be recorded for
	// those who ask. Field "error".
	EventProgressFailed = "worker.progress_failed"

	// EventReady (info): the worker pulls, for the first time or again.
	EventReady = "worker.ready"

	// EventRecordFailed (error): a unique job ended, and the stream does not take the
	// record of it, so that its key is free at once. Field "error".
	EventRecordFailed = "worker.record_failed"

	// EventReplayUnmarked (warn): that a replayed job was worked could not be noted. Field
	// "error".
	EventReplayUnmarked = "worker.replay_unmarked"

	// EventStopped (info): Run is about to return.
	EventStopped = "worker.stopped"

	// EventStopping (info): no more jobs are taken. Field "running".
	EventStopping = "worker.stopping"
)
