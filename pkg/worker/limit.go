package worker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/limit"
)

const (
	// MaxLimits is how many limits a policy may have.
	MaxLimits = 8

	// MaxPermits is the greatest Limit.Concurrency, Rate and Burst.
	MaxPermits = 1_000_000

	// longestPer is the longest Limit.Per.
	longestPer = 31 * 24 * time.Hour
)

// errUnreadable is the error of an attempt that could not begin since nobody can tell
// whether a limit allows it.
var errUnreadable = errors.New("worker: a limit cannot be read")

// Limit is a limit over all workers that share a Config.LimitBucket, in whatever processes.
// It needs a Concurrency, a Rate or both.
//
// Jobs that have to wait use neither a slot of Config.Concurrency nor an attempt. Up to
// Config.MaxWaiting of them wait in the worker and start within milliseconds of a permit
// becoming free, those that were stored first before others. The rest is given back to the
// server with a delay: the time after which those before it will have started, by the pace
// of late, of a minute at most. So jobs of one key, however many, hold up no others.
//
// A permit lasts while its worker renews a lease of Config.AckWait. When it cannot, since
// its process is stopped or the server is away, the contexts of its handlers end with a
// [*LimitLostError], before anybody else takes the permits: handlers whose contexts are
// live are never more than Concurrency. A handler that does not care for its context can
// go on. The permits of a killed worker are free within two AckWaits, those of one that
// stops at once.
//
// A job with several limits waits for one at a time and has no permit of another meanwhile,
// but for up to a second before a start that is due. A start that another limit then does
// not allow is lost. A job of a batch has its permits before the batch is full, so a
// Concurrency below BatchPolicy.Size lets batches start by their Wait alone.
type Limit struct {
	// Burst is how many starts there may be at once after a pause. Defaults to 1.
	Burst int

	// Concurrency is how many handlers may run at once. Defaults to no limit, at most
	// 1,000,000.
	Concurrency int

	// Key tells what a job counts under, from what identifies it, its headers and its payload
	// as it was published: a tenant, a host. Each key has the whole limit to itself. It is
	// never stored, only its hash. Defaults to one key for all jobs.
	Key func(info Info, header nats.Header, payload []byte) string

	// Name says which limits are one: those of the same name, of any handler and worker.
	// They should not differ in anything else: each worker goes by what it was given. Letters,
	// digits, "-" and "_", at most 64. Required.
	Name string

	// Per is the time in which Rate jobs may start. At least Rate microseconds, at most 31
	// days.
	Per time.Duration

	// Rate is how many jobs start in Per, evenly spaced, after the first Burst: in no such
	// time are they more than Rate and Burst together. Clocks that differ between machines
	// add what is due in that time. Defaults to no limit.
	Rate int
}

// LimitLostError is the cause with which a handler's context ends whose permit is not held
// any more. Unless the handler is done all the same, its job is given back at once, and the
// attempt does not count.
type LimitLostError struct {
	// Cause says why.
	Cause error
}

// Error implements error.
func (e *LimitLostError) Error() string {
	return fmt.Sprintf("worker: the job may not run any longer: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *LimitLostError) Unwrap() error { return e.Cause }

var limitName = regexp.MustCompile(`^[-_A-Za-z0-9]{1,64}$`)

// checkLimits reports everything that is wrong with a policy's limits. It expects defaults
// to be set.
func checkLimits(limits []Limit) error {
	var errs []error

	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("worker: Policy.Limits"+format, args...))
	}

	if len(limits) > MaxLimits {
		bad(" are %d: use at most %d", len(limits), MaxLimits)
	}

	seen := make(map[string]bool)

	for i, l := range limits {
		if !limitName.MatchString(l.Name) {
			bad("[%d].Name is %q: use 1 to 64 letters, digits, '-' and '_'", i, l.Name)
		}

		if seen[l.Name] {
			bad("[%d].Name is %q, as that of another: use each once", i, l.Name)
		}

		seen[l.Name] = true

		if l.Concurrency < 0 || l.Concurrency > MaxPermits {
			bad("[%d].Concurrency is %d: use 1 to %d, or 0 for no limit", i, l.Concurrency, MaxPermits)
		}

		if l.Rate < 0 || l.Rate > MaxPermits || l.Burst < 1 || l.Burst > MaxPermits {
			bad("[%d].Rate is %d and Burst %d: use 1 to %d, or 0 for no limit", i, l.Rate, l.Burst, MaxPermits)
		}

		if l.Rate == 0 && l.Concurrency == 0 {
			bad("[%d] has neither Concurrency nor Rate: use one of them, or both", i)
		}

		if l.Rate > 0 && (l.Per < time.Duration(l.Rate)*time.Microsecond || l.Per > longestPer) {
			bad("[%d].Per is %s: use at least %d microseconds (those of Rate), at most %s", i, l.Per, l.Rate, longestPer)
		}
	}

	return errors.Join(errs...)
}

// spec is what a limit is, without the key.
func (l Limit) spec() limit.Spec {
	return limit.Spec{Burst: l.Burst, Concurrency: l.Concurrency, Name: l.Name, Per: l.Per, Rate: l.Rate}
}

// checkSame makes sure that limits of one name are one limit here.
func (w *Worker) checkSame(added *route) error {
	for _, r := range w.routes {
		for _, have := range r.policy.Limits {
			for _, l := range added.policy.Limits {
				if l.Name == have.Name && l.spec() != have.spec() {
					return fmt.Errorf("worker: handle %q: limit %q differs from that of %q: %+v and %+v",
						added.pattern, l.Name, r.pattern, l.spec(), have.spec())
				}
			}
		}
	}

	return nil
}

// openLimits is called when Run begins.
func (w *Worker) openLimits() {
	if !w.limited {
		return
	}

	w.limits = limit.New(limit.Config{
		Bucket: w.cfg.LimitBucket, JetStream: w.js, Lease: w.cfg.AckWait, Request: w.cfg.RequestTimeout, Waiting: w.cfg.MaxWaiting,
		Failed: func(err error) { w.log.Warn(EventLimitFailed, "error", w.denial(err)) },
		Lost:   func(err error) { w.log.Warn(EventLimitLost, "error", err) },
	})
}

// enter waits until the limits of a job let it run.
func (w *Worker) enter(d *delivery, cancel context.CancelCauseFunc) (*limit.Pass, error) {
	rules, err := rulesOf(d)
	if err != nil {
		d.info.Attempt = w.countAttempt(d) // it fails like a handler

		return nil, err
	}

	place := &seat{delivery: d, worker: w}
	defer place.show(false)

	pass, err := w.limits.Enter(w.stopping, limit.Entry{
		Rules: rules, Seat: place, Sequence: d.info.Sequence,
		Lost: func(err error) {
			d.lost.Store(true)
			cancel(&LimitLostError{Cause: err})
		},
	})

	if place.parked {
		w.table.park(-1)
	}

	var unreadable *limit.RecordError

	switch {
	case errors.Is(err, limit.ErrClosed):
		<-w.drained // as in takeSlot

		return nil, errNotStarted
	case errors.As(err, &unreadable):
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	case err != nil:
		w.leaveSlot(d) // for those that can start, while this one is given back

		return nil, fmt.Errorf("worker: %w", err)
	}

	return pass, nil
}

// rulesOf computes what a job counts under.
func rulesOf(d *delivery) (rules []limit.Rule, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Stack: debug.Stack(), Value: value}
		}
	}()

	for _, l := range d.policy.Limits {
		rule := limit.Rule{Spec: l.spec()}
		if l.Key != nil {
			rule.Key = l.Key(d.info, d.msg.Header, d.msg.Data)
		}

		rules = append(rules, rule)
	}

	limit.Sort(rules)

	return rules, nil
}

// dispossessed reports whether d lost a permit while its handler ran.
func (d *delivery) dispossessed() bool { return d.lost.Load() }

// seat is the slot of a job, which it leaves while it waits for a limit. Its methods are
// called one at a time.
type seat struct {
	delivery *delivery
	parked   bool
	shown    bool
	worker   *Worker
}

// Give leaves the slot to others.
func (s *seat) Give() bool {
	if !s.delivery.seated {
		return false
	}

	s.parked, s.delivery.waited = true, true
	s.worker.table.park(1)
	s.worker.leaveSlot(s.delivery)
	s.worker.puller.Freed()
	s.show(true)

	return true
}

// Take takes a slot if there is one.
func (s *seat) Take() bool {
	if s.delivery.seated {
		return true
	}

	if !s.worker.slots.Try() {
		return false
	}

	s.parked, s.delivery.seated = false, true
	s.worker.table.park(-1)

	return true
}

// show tells the hook.
func (s *seat) show(waits bool) {
	if s.shown != waits && s.worker.cfg.Hooks.Waiting != nil {
		s.worker.cfg.Hooks.Waiting(s.delivery.info, waits)
	}

	s.shown = waits
}

// leaveSlot frees the slot of a delivery that has one.
func (w *Worker) leaveSlot(d *delivery) {
	if !d.seated {
		return
	}

	d.seated = false
	w.slots.Give()
	w.limits.Freed()
}
