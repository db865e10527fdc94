package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// Config configures a [Worker]. Stream and Consumer are required, every other field has a default.
type Config struct {
	// AckWait is the time for which the server waits for a heartbeat before it gives a job to another worker. The worker sends a heartbeat
	// for every running job each AckWait/3, for an ordered job each AckWait/6. So AckWait does not limit the run time of a job; the job of a
	// killed worker runs again between 2/3 and 1 AckWait after the kill. Defaults to 5 seconds, at least 100 ms, at most 24 hours.
	AckWait time.Duration

	// AutoCreate makes Run create or update the consumers, and create the stream, the bucket and the dead letter stream (named DEAD) when
	// they are missing. The stream then takes all subjects that share their first token with a pattern of a handler, see [StreamConfig]. It
	// is for laptops, tests and embedded servers; elsewhere an operator declares them and Run only checks. Defaults to false.
	AutoCreate bool

	// Bucket is the key-value bucket that holds the counts of uncounted deliveries. Its stream must allow per-message TTLs.
	// Defaults to "jobs".
	Bucket string

	// Concurrency is the number of handlers that run at once in this worker, over all its patterns, at most 1,000,000. Defaults to 100.
	Concurrency int

	// Consumer is the durable name that all workers of this kind share. Handlers with a Policy.Priority have consumers of their
	// own, whose names begin with it. Letters, digits, "-" and "_". Required.
	Consumer string

	// DeadSubject is the first part of the subject of dead letters, which are published to
	// <DeadSubject>.<stream>.<original subject>. Defaults to "dead".
	DeadSubject string

	// HardStop is the time for which a stopping worker waits for handlers after it cancelled their contexts. Jobs that still run then are
	// handed back to the server, so that another worker starts them at once. The error of Run names them. Defaults to 5 seconds; -1 does not
	// wait.
	HardStop time.Duration

	// Hooks are called when jobs start and end. Defaults to none.
	Hooks Hooks

	// ID names this worker in logs and dead letters. At most 320 bytes. Defaults to host name, process id and a random part.
	ID string

	// KeepConsumers makes AutoCreate leave existing consumers unchanged: a consumer with other settings is a *DriftError. Defaults to false.
	KeepConsumers bool

	// Logger receives the events, see [EventReady] and the other names. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxWaiting is the number of jobs that may wait in this worker for a limit, or for earlier ordered jobs, beside the running jobs. The
	// worker gives further jobs back to the server, with a delay. One key of a limit has at most half of MaxWaiting, and less when jobs of
	// other keys wait as well. Each waiting job costs its memory and its heartbeats. Defaults to ten times Concurrency.
	MaxWaiting int

	// Middleware runs around every handler, the first one outermost. Defaults to none.
	Middleware []Middleware

	// RequestTimeout is the time after which the outcome of a request to the server counts as unknown. Defaults to 2 seconds.
	RequestTimeout time.Duration

	// SettleTimeout is the time for which the worker tries to record the outcome of a finished job (to acknowledge it, to publish its dead
	// letter) while the server is away. The job keeps its slot and its heartbeat. Then the worker leaves the job to be delivered
	// again. Defaults to 30 seconds.
	SettleTimeout time.Duration

	// SoftStop is the time in which a stopping worker lets handlers finish before it cancels their contexts. It counts from the end of the
	// last pull, up to a second after Run's context has ended. Defaults to 10 seconds; -1 cancels at once.
	SoftStop time.Duration

	// StepBucket is the key-value bucket that holds the results of the steps of jobs, see package step. Its stream must
	// allow per-message TTLs and keep one message per subject. Give steps their own bucket when results are large or
	// many. Defaults to Bucket.
	StepBucket string

	// StepTTL is the time for which the steps of a job are remembered after the last step, or after the last attempt that used them. A job
	// that is deferred for longer, or replayed from the dead letters later, starts over. In whole seconds, one minute to ten years. Defaults
	// to 7 days.
	StepTTL time.Duration

	// Stream is the stream that holds the jobs. Letters, digits, "-" and "_". Required.
	Stream string

	// StuckAfter is the time after which a handler that ignores its ended context is reported as stuck (once, by log and hook). It keeps its
	// slot and its heartbeat, since a start elsewhere would run the job twice. Defaults to 10 seconds.
	StuckAfter time.Duration

	// Version is the version of the program, for inspectors of its workers, see package inspect. Defaults to the version of the main module
	// that the go command stamped into the program.
	Version string
}

// maxName is the longest name, in bytes, of a stream, a consumer or a worker.
const maxName = 255

// withDefaults returns a copy in which every zero value is replaced.
func (c Config) withDefaults() Config {
	c.AckWait = cmp.Or(c.AckWait, 5*time.Second)
	c.Bucket = cmp.Or(c.Bucket, "jobs")
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.DeadSubject = cmp.Or(c.DeadSubject, "dead")
	c.HardStop = cmp.Or(c.HardStop, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10*min(c.Concurrency, MaxPermits))
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 30*time.Second)
	c.SoftStop = cmp.Or(c.SoftStop, 10*time.Second)
	c.StepBucket = cmp.Or(c.StepBucket, c.Bucket)
	c.StepTTL = cmp.Or(c.StepTTL, 7*24*time.Hour)
	c.StuckAfter = cmp.Or(c.StuckAfter, 10*time.Second)
	if c.Hooks.Ready == nil {
		c.Hooks.Ready = func(bool, error) {}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		c.Version = cmp.Or(c.Version, info.Main.Version)
	}
	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.ID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), nuid.Next()[16:])
	}
	return c
}

// validate returns an error that names all mistakes. Defaults must be set before.
func (c Config) validate() error {
	badID := checkID(c.ID)
	return errors.Join(
		checkName("Config.Bucket", c.Bucket),
		checkName("Config.Consumer", c.Consumer),
		checkName("Config.StepBucket", c.StepBucket),
		checkName("Config.Stream", c.Stream),
		checkSubject("Config.DeadSubject", c.DeadSubject),
		validate.If(badID != nil, "worker: Config.ID is %s: %w", redact.Quote(c.ID), badID),
		validate.If(c.AckWait < 100*time.Millisecond || c.AckWait > 24*time.Hour,
			"worker: Config.AckWait is %s: use at least 100ms, at most 24h", c.AckWait),
		validate.If(c.Concurrency < 1 || c.Concurrency > MaxPermits, "worker: Config.Concurrency is %d: use 1 to %d", c.Concurrency, MaxPermits),
		validate.If(c.MaxWaiting < 1 || c.MaxWaiting > 10*MaxPermits,
			"worker: Config.MaxWaiting is %d: use 1 to %d", c.MaxWaiting, 10*MaxPermits),
		validate.If(c.StepTTL < time.Minute || c.StepTTL > maxAhead || c.StepTTL%time.Second != 0,
			"worker: Config.StepTTL is %s: use whole seconds, from 1m to %s", c.StepTTL, maxAhead),
		checkPositive("Config.RequestTimeout", c.RequestTimeout),
		checkPositive("Config.SettleTimeout", c.SettleTimeout),
		checkPositive("Config.StuckAfter", c.StuckAfter),
		checkWait("Config.HardStop", c.HardStop),
		checkWait("Config.SoftStop", c.SoftStop))
}

func checkName(field, value string) error {
	return validate.If(!subject.IsName(value, maxName),
		"worker: %s is %s: use 1 to 255 letters, digits, '-' and '_'", field, redact.Quote(value))
}

func checkSubject(field, value string) error {
	bad := subject.CheckLiteral(value)
	return validate.If(bad != nil, "worker: %s is %s: not a literal subject: %w", field, redact.Quote(value), bad)
}

func checkPositive(field string, d time.Duration) error {
	return validate.If(d < 0, "worker: %s is %s: use a positive duration", field, d)
}

func checkWait(field string, d time.Duration) error {
	return validate.If(d < 0 && d != -1, "worker: %s is %s: use a positive duration, or -1 for no wait", field, d)
}

// A job that is given back waits within these bounds: a broken policy must not spin, and the server cannot add much more to a time.
const (
	minDelay = 100 * time.Millisecond
	maxDelay = maxAhead
)

func bounded(wait time.Duration) time.Duration { return min(max(wait, minDelay), maxDelay) }

// Policy configures how the jobs of one handler are decoded, retried and limited. The zero value is ready to use.
type Policy struct {
	// Backoff returns the wait before the next attempt, given the number of the attempt that failed (1 for the first). Jitter is applied to
	// the wait, which is at least 100 ms and at most ten years. If Backoff panics, the default is used. Defaults to
	// Exponential(time.Second, 15*time.Minute).
	Backoff func(attempt int) time.Duration

	// Decode turns the payload of a message into args, a pointer to the handler's type. An error sends the message to the dead
	// letters at once: a payload that cannot be read today cannot be read by a retry. Defaults to the counterpart of ClientConfig.Encode: a
	// []byte is the payload, any other type is read from JSON.
	Decode func(header nats.Header, payload []byte, args any) error

	// Jitter is the share by which a backoff may be longer or shorter, between 0 and 1. Defaults to 0.2 (plus or minus 20 %);
	// -1 is none.
	Jitter float64

	// Limits bound, over all workers, the number of jobs that run at once, and the rate of their starts. At most 8. Defaults to none.
	Limits []Limit

	// MaxAttempts is the number of attempts of a job before it goes to the dead letters. An error, a panic, a timeout and a crash of the
	// worker use an attempt; Snooze and a shutdown use none. Defaults to 10.
	MaxAttempts int

	// OnDeadLetter is called with the letter of a job that is given up, before the letter is stored and the job is
	// acknowledged. So effects that must follow the end of the job happen even if the worker crashes. After an error, a panic or a crash the
	// job is delivered again and OnDeadLetter is called again, until it returns nil: it must be idempotent. Each call may take
	// Config.SettleTimeout, after which it counts as failed, and must not change the dead letter. Defaults to nothing.
	OnDeadLetter func(ctx context.Context, letter DeadLetter) error

	// Ordered runs the jobs of one subject one after the other, in the order of the stream, over all workers: a job starts when the jobs
	// before it have ended, done or dead. It also waits for a job that waits for a retry, or whose worker has died. Jobs of other subjects
	// run at the same time. Waiting jobs use neither a slot nor an attempt; beyond Config.MaxWaiting they are given back with a delay. The
	// stream must be a work queue, and all workers of a subject must set it.
	//
	// A handler's context ends with a [*LimitLostError] when its heartbeats were not confirmed for two thirds of AckWait, before the server
	// gives the job to another worker; the job is then left to that worker. Three cases are not excluded. A handler that goes on all the
	// same, or whose process was stopped, may run at the same time as another. For up to AckWait/3 two workers can run a job whose consumer
	// was deleted and made again. An acknowledgement that is delayed in the network for longer than AckWait lets the next job start beside
	// the repetition of a job that was done. A server without replicas that crashes may forget acknowledgements, so that jobs run again.
	// A replayed or delayed job has the place at which it came into the stream. For the only worker of a consumer a job costs no more
	// requests, as a rule. With several workers it costs one read; a job that waits for a job of another worker starts after as long again,
	// and up to 2 seconds after its end. Defaults to false.
	Ordered bool

	// Priority decides which jobs start first when the worker has fewer free slots than waiting jobs. The handlers of one
	// priority share a consumer of the server, named by [ConsumerOf], so a worker with several priorities pulls from several
	// consumers. A job's attempts are counted on the consumer that delivered it: they start over when the priority of its
	// handler is changed. Defaults to PriorityNormal.
	Priority Priority

	// Timeout is the run time after which the context of a handler ends, with a [*TimeoutError] as its cause. Defaults to 1 hour; -1 is no
	// limit.
	Timeout time.Duration
}

// Exponential returns a backoff of base, 2*base, 4*base and so on, never more than limit.
func Exponential(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		return retry.Wait(attempt-1, max(base, 0), limit)
	}
}

var defaultBackoff = Exponential(time.Second, 15*time.Minute)

func (p Policy) withDefaults() Policy {
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	if p.Decode == nil {
		p.Decode = jobmsg.Decode
	}
	p.Jitter = cmp.Or(p.Jitter, 0.2)
	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		p.Limits[i].Burst = cmp.Or(p.Limits[i].Burst, 1)
	}
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 10)
	p.Timeout = cmp.Or(p.Timeout, time.Hour)
	return p
}

// validate returns an error that names all mistakes. Defaults must be set before.
func (p Policy) validate() error {
	_, known := prioritySuffixes[p.Priority]
	return errors.Join(
		validate.If(p.Jitter != -1 && (p.Jitter < 0 || p.Jitter > 1), "worker: Policy.Jitter is %v: use 0 to 1, or -1 for none", p.Jitter),
		checkLimits(p.Limits),
		validate.If(p.MaxAttempts < 1, "worker: Policy.MaxAttempts is %d: use at least 1", p.MaxAttempts),
		validate.If(!known, "worker: Policy.Priority is %d: use PriorityLowest to PriorityHighest, %d to %d",
			p.Priority, PriorityLowest, PriorityHighest),
		validate.If(p.Timeout < 0 && p.Timeout != -1, "worker: Policy.Timeout is %s: use a positive duration, or -1 for no limit", p.Timeout))
}

// delay returns the jittered wait after a failed attempt. random is in [0, 1).
func (p Policy) delay(attempt int, random float64) time.Duration {
	wait := bounded(p.Backoff(attempt))
	if p.Jitter > 0 {
		wait += time.Duration(float64(wait) * p.Jitter * (2*random - 1))
	}
	return bounded(wait)
}

// backoff returns the wait after a failed attempt.
func (w *Worker) backoff(p Policy, attempt int) (wait time.Duration) {
	random := rand.Float64()
	if !w.callApart("Policy.Backoff", func() { wait = p.delay(attempt, random) }) {
		p.Backoff = defaultBackoff
		wait = p.delay(attempt, random)
	}
	return wait
}

// onDeadLetter calls Policy.OnDeadLetter, and returns when ctx ends even if the call does not: a slot must not be lost, nor the end of Run.
func (w *Worker) onDeadLetter(ctx context.Context, p Policy, letter DeadLetter) (err error) {
	if p.OnDeadLetter == nil {
		return nil
	}
	called := make(chan error, 1)
	go w.observe("Policy.OnDeadLetter", func() {
		err := errors.New("it panicked, or called runtime.Goexit")
		defer func() { called <- err }()
		err = redact.Safe(p.OnDeadLetter(ctx, letter))
	})
	select {
	case err = <-called:
	case <-ctx.Done():
		err = fmt.Errorf("it has not returned, and may still run: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("worker: Policy.OnDeadLetter: %w", err)
	}
	return nil
}

// Priority decides which jobs of one worker start first when there are fewer free slots than waiting jobs. The jobs of each priority have
// their own consumer, see [Policy.Priority].
type Priority int

// The priorities. While jobs of several priorities wait, each priority gets four times the starts of the next lower one, so that none is
// ever starved: while jobs of PriorityHigh, PriorityNormal and PriorityLow wait, they get 16, 4 and 1 of 21 starts. A priority without
// waiting jobs leaves its slots to the others. If the others then have every slot, its next job waits for at most 5 ms and then for the
// next free slot.
const (
	PriorityLowest Priority = iota - 2
	PriorityLow
	PriorityNormal // the default
	PriorityHigh
	PriorityHighest
)

var prioritySuffixes = map[Priority]string{
	PriorityLowest: "-lowest", PriorityLow: "-low", PriorityNormal: "", PriorityHigh: "-high", PriorityHighest: "-highest",
}

// weight returns the number of starts for one of PriorityLowest: each priority has four times those of the next lower one.
func (p Priority) weight() int { return 1 << (2 * (p - PriorityLowest)) }

// ConsumerOf returns the name of the consumer of the jobs with a priority, for a worker with the given Config.Consumer: that
// name for PriorityNormal, otherwise with "-highest", "-high", "-low" or "-lowest" at its end.
func ConsumerOf(consumer string, p Priority) string { return consumer + prioritySuffixes[p] }

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

	// OutcomeLimited means that the job was deferred before it started, because a limit was reached and no more jobs could wait in this
	// worker. It uses no attempt.
	OutcomeLimited Outcome = "limited"

	// OutcomePaused means that the job was deferred before it started, because its handler is paused, see [Client.Pause]. It uses no attempt.
	OutcomePaused Outcome = "paused"

	// OutcomeRetried means that the attempt failed, and another will follow.
	OutcomeRetried Outcome = "retried"

	// OutcomeSnoozed means that the job was deferred without using an attempt.
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

	// EventJobCopied (info): a job that this worker has acknowledged was delivered again. It is acknowledged and not
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

	// EventJobUnhandled (error): a message matches no handler here; it is deferred. Field "delay".
	EventJobUnhandled = "worker.job_unhandled"

	// EventJobUnknown (warn): an outcome was not confirmed; the job may run again. Fields "outcome", "error".
	EventJobUnknown = "worker.job_unknown"

	// EventLimitFailed (warn): the records of limits could not be read or written; the worker tries again. Field "error".
	EventLimitFailed = "worker.limit_failed"

	// EventLimitLost (warn): the lease of this worker's permits has ended, and with it the contexts of the handlers that run under a permit.
	// Field "error".
	EventLimitLost = "worker.limit_lost"

	// EventLimitUnreadable (error): the record of a limit cannot be decoded; the job is deferred. Field "error".
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
