package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// minDelay is the shortest wait that a backoff gives, so that a broken policy cannot spin.
const minDelay = 100 * time.Millisecond

// Policy says how the jobs of one handler are decoded, retried and limited. The zero value
// is ready to use.
type Policy struct {
	// Backoff returns the wait before the next attempt, given the number of the attempt
	// that failed (1 for the first). Jitter is applied to what it returns; the result is
	// never below 100 ms. Defaults to Exponential(time.Second, 15*time.Minute).
	Backoff func(attempt int) time.Duration

	// Bury is called with the letter of a job that is given up, before the letter is stored and
	// the job acknowledged: for what has to follow from that whatever dies in between. After an
	// error or a panic the job is delivered again, and so after a crash; it comes back here until this
	// returns nil, so what this does must be the same when it is done twice. It has Config.SettleTimeout
	// each time, and must not change the letter. Defaults to nothing.
	Bury func(ctx context.Context, letter DeadLetter) error

	// Decode turns the payload of a message into args, a pointer to the handler's type. An
	// error sends the message to the dead letters at once: a payload that cannot be read
	// today cannot be read by a retry. Defaults to json.Unmarshal of the payload.
	Decode func(header nats.Header, payload []byte, args any) error

	// Jitter is the share by which a backoff may be longer or shorter, between 0 and 1.
	// Defaults to 0.2 (plus or minus 20 %); -1 is none.
	Jitter float64

	// Limits are counted over all workers: how many of the jobs run at once, and how often
	// they start. At most 8. Defaults to none.
	Limits []Limit

	// MaxAttempts is how many attempts a job has before it goes to the dead letters. An
	// attempt is used by an error, a panic, a timeout and a crash of the worker; none is
	// used by Snooze and by a shutdown. Defaults to 10.
	MaxAttempts int

	// Priority says which jobs start first when the worker has not slots for all that wait.
	// The handlers of one priority share a consumer of the server, named by [ConsumerOf], so
	// a worker with several priorities pulls from several. A job that a consumer has
	// delivered counts its attempts there: they start over when the priority of its handler
	// is changed. Defaults to PriorityNormal.
	Priority Priority

	// Timeout ends the context of a handler that has run this long, with a [*TimeoutError]
	// as its cause. Defaults to 1 hour; -1 is no limit.
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

	if p.Jitter == 0 {
		p.Jitter = 0.2
	}

	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		p.Limits[i].Burst = cmp.Or(p.Limits[i].Burst, 1)
	}

	if p.MaxAttempts == 0 {
		p.MaxAttempts = 10
	}

	if p.Timeout == 0 {
		p.Timeout = time.Hour
	}

	return p
}

func (p Policy) validate() error {
	var errs []error

	if p.Jitter != -1 && (p.Jitter < 0 || p.Jitter > 1) {
		errs = append(errs, fmt.Errorf("worker: Policy.Jitter is %v: use 0 to 1, or -1 for none", p.Jitter))
	}

	if err := checkLimits(p.Limits); err != nil {
		errs = append(errs, err)
	}

	if p.MaxAttempts < 1 {
		errs = append(errs, fmt.Errorf("worker: Policy.MaxAttempts is %d: use at least 1", p.MaxAttempts))
	}

	if err := p.Priority.validate(); err != nil {
		errs = append(errs, err)
	}

	if p.Timeout < 0 && p.Timeout != -1 {
		errs = append(errs, fmt.Errorf("worker: Policy.Timeout is %s: use a positive duration, or -1 for no limit", p.Timeout))
	}

	return errors.Join(errs...)
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

// bury calls Bury. A panic is an error: the goroutine is that of the job, and has left its handler.
func (p Policy) bury(ctx context.Context, letter DeadLetter) (err error) {
	if p.Bury == nil {
		return nil
	}

	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("worker: Policy.Bury: %w", &PanicError{Stack: debug.Stack(), Value: value})
		}
	}()

	if err := p.Bury(ctx, letter); err != nil {
		return fmt.Errorf("worker: Policy.Bury: %w", err)
	}

	return nil
}
