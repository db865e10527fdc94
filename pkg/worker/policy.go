package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// minDelay is the shortest wait that a backoff gives, so that a broken policy cannot spin.
const minDelay = 100 * time.Millisecond

// Policy configures how the jobs of one handler are decoded, retried and limited. The zero value is ready to use.
type Policy struct {
	// Backoff returns the wait before the next attempt, given the number of the attempt that failed (1 for the first). Jitter
	// is applied to it; the result is never below 100 ms. Defaults to Exponential(time.Second, 15*time.Minute).
	Backoff func(attempt int) time.Duration

	// Decode turns the payload of a message into args, a pointer to the handler's type. An error sends the message to the dead
	// letters at once: a payload that cannot be read today cannot be read by a retry. Defaults to json.Unmarshal of the payload.
	Decode func(header nats.Header, payload []byte, args any) error

	// Jitter is the share by which a backoff may be longer or shorter, between 0 and 1. Defaults to 0.2 (plus or minus 20 %);
	// -1 is none.
	Jitter float64

	// Limits are counted over all workers: how many of the jobs run at once, and how often they start. At most 8. Defaults to
	// none.
	Limits []Limit

	// MaxAttempts is how many attempts a job has before it goes to the dead letters. An error, a panic, a timeout and a crash of
	// the worker use an attempt; Snooze and a shutdown use none. Defaults to 10.
	MaxAttempts int

	// OnDeadLetter is called with the letter of a job that is given up, before the letter is stored and the job is
	// acknowledged. So effects that must follow from the end of the job happen even if the worker crashes. After an error, a
	// panic or a crash the job is delivered again and OnDeadLetter is called again, until it returns nil: it must be
	// idempotent. Each call has Config.SettleTimeout, and must not change the letter. Defaults to nothing.
	OnDeadLetter func(ctx context.Context, letter DeadLetter) error

	// Ordered runs the jobs of one subject one after the other, in the order of the stream, over all workers: a job starts when
	// those before it have ended, done or dead, also when they wait for a retry, or their worker has died. Jobs of other subjects
	// run beside them. Jobs that wait use neither a slot nor an attempt; beyond Config.MaxWaiting they are given back with a
	// delay. The stream must be a work queue, and all workers of a subject must set it.
	//
	// A handler's context ends with a [*LimitLostError] when its heartbeats were not confirmed for two thirds of AckWait, before
	// the server gives the job to another worker; the job is left to that one then. Three cases are not excluded: a handler that goes
	// on all the same, or whose process was stopped, runs beside another for as long as it does; for up to AckWait/3 two workers
	// can run a job whose consumer was deleted and made again; and an acknowledgement that is held up in the network for longer
	// than AckWait lets the next job start beside the repetition of a job that was done. A server without replicas that crashes
	// may forget acknowledgements, so that jobs run once more. A job that is replayed, or was delayed, has the place in which it
	// came into the stream. In a worker that alone works the consumer a job costs no request more, as a rule; with several
	// workers, one read for each job, and a job that waits for one of another worker starts after as long again, and up to 2 seconds
	// after its end.
	// Defaults to false.
	Ordered bool

	// Priority decides which jobs start first when the worker has fewer free slots than waiting jobs. The handlers of one
	// priority share a consumer of the server, named by [ConsumerOf], so a worker with several priorities pulls from several
	// consumers. A job's attempts are counted on the consumer that delivered it: they start over when the priority of its
	// handler is changed. Defaults to PriorityNormal.
	Priority Priority

	// Timeout ends the context of a handler that has run this long, with a [*TimeoutError] as its cause. Defaults to 1 hour;
	// -1 is no limit.
	Timeout time.Duration
}

// Exponential returns a backoff of base, 2*base, 4*base and so on, never more than limit.
func Exponential(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		delay := max(base, 0)
		for range attempt - 1 {
			if delay >= limit/2 {
				return limit
			}
			delay *= 2
		}
		return min(delay, limit)
	}
}

func (p Policy) withDefaults() Policy {
	if p.Backoff == nil {
		p.Backoff = Exponential(time.Second, 15*time.Minute)
	}
	if p.Decode == nil {
		p.Decode = func(_ nats.Header, payload []byte, args any) error { return json.Unmarshal(payload, args) }
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

// validate reports all mistakes at once. It expects defaults to be set.
func (p Policy) validate() error {
	var m mistakes
	if p.Jitter != -1 && (p.Jitter < 0 || p.Jitter > 1) {
		m.addf("Policy.Jitter is %v: use 0 to 1, or -1 for none", p.Jitter)
	}
	checkLimits(&m, p.Limits)
	if p.MaxAttempts < 1 {
		m.addf("Policy.MaxAttempts is %d: use at least 1", p.MaxAttempts)
	}
	if _, known := prioritySuffixes[p.Priority]; !known {
		m.addf("Policy.Priority is %d: use PriorityLowest to PriorityHighest, %d to %d", p.Priority, PriorityLowest, PriorityHighest)
	}
	if p.Timeout < 0 && p.Timeout != -1 {
		m.addf("Policy.Timeout is %s: use a positive duration, or -1 for no limit", p.Timeout)
	}
	return m.err()
}

// delay is the jittered wait after a failed attempt. random is in [0, 1).
func (p Policy) delay(attempt int, random float64) time.Duration {
	wait := p.Backoff(attempt)
	if p.Jitter > 0 {
		wait += time.Duration(float64(wait) * p.Jitter * (2*random - 1))
	}
	return max(wait, minDelay)
}

func (p Policy) nextDelay(attempt int) time.Duration {
	return p.delay(attempt, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}

// onDeadLetter calls OnDeadLetter. A panic of it becomes an error: the goroutine is the job's, outside of its handler.
func (p Policy) onDeadLetter(ctx context.Context, letter DeadLetter) error {
	if p.OnDeadLetter == nil {
		return nil
	}
	call := func() (err error) {
		defer catchPanic(&err)
		return p.OnDeadLetter(ctx, letter)
	}
	if err := call(); err != nil {
		return fmt.Errorf("worker: Policy.OnDeadLetter: %w", err)
	}
	return nil
}

// Priority decides which jobs of one worker start first when there are fewer free slots than waiting jobs. The jobs of a
// priority have a consumer of their own, see [Policy.Priority].
type Priority int

// The priorities. While jobs of several priorities wait, each priority gets four times the starts of the one below it, so
// that none is ever starved: while jobs of PriorityHigh, PriorityNormal and PriorityLow wait, they get 16, 4 and 1 of 21
// starts. A priority without waiting jobs leaves its slots to the others. When the others take every slot, its next job
// waits for at most 5 ms and then for the next free slot.
const (
	PriorityLowest Priority = iota - 2
	PriorityLow
	PriorityNormal // the default
	PriorityHigh
	PriorityHighest
)

// priorityShare is how many starts a priority has for one of the priority below it.
const priorityShare = 4

var prioritySuffixes = map[Priority]string{
	PriorityLowest: "-lowest", PriorityLow: "-low", PriorityNormal: "", PriorityHigh: "-high", PriorityHighest: "-highest",
}

func (p Priority) weight() int {
	weight := 1
	for ; p > PriorityLowest; p-- {
		weight *= priorityShare
	}
	return weight
}

// ConsumerOf returns the name of the consumer of the jobs with a priority, for a worker with the given Config.Consumer: that
// name for PriorityNormal, otherwise with "-highest", "-high", "-low" or "-lowest" at its end.
func ConsumerOf(consumer string, p Priority) string { return consumer + prioritySuffixes[p] }

// RetryError is what [Retry] returns.
type RetryError struct {
	// After is the wait before the next attempt, used as it is: no backoff, no jitter.
	After time.Duration

	// Cause is why, and may be nil.
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

// SnoozeError is what [Snooze] returns.
type SnoozeError struct {
	// Delay is the wait before the job is delivered again.
	Delay time.Duration
}

// Snooze puts the job off without using an attempt: the next delivery has the same Job.Attempt. It costs two round trips more
// than [Retry]. A negative delay counts as zero. A job may be snoozed without limit.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: max(delay, 0)} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// CancelError is what [Cancel] returns.
type CancelError struct {
	// Cause is why, and may be nil.
	Cause error
}

// Cancel gives the job up: it goes to the dead letters at once, even if it has attempts left. Use it for errors that no
// retry can mend.
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
