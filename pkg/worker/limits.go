package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// MaxLimits is the largest number of limits of a policy.
	MaxLimits = 8

	// MaxPermits is the greatest Limit.Concurrency, Rate and Burst.
	MaxPermits = 1_000_000

	// longestPer is the longest Limit.Per.
	longestPer = 31 * 24 * time.Hour
)

// errLimitUnreadable is the error of an attempt that did not begin because the record of a limit cannot be read.
var errLimitUnreadable = refused(OutcomeLimited, unhandledDelay, "worker: a limit cannot be read")

// Limit is a limit over all workers that share a Config.Bucket, in any processes. It needs a Concurrency, a Rate or both.
//
// Jobs that have to wait use neither a slot of Config.Concurrency nor an attempt. Up to Config.MaxWaiting of them wait in
// the worker and start within milliseconds of a permit becoming free, in the order in which they were stored. The worker gives the rest
// back to the server with a delay of at most a minute: the time in which the jobs before them start at the recent pace. So jobs of one
// key, however many, do not delay others.
//
// A permit lasts while its worker renews a lease of Config.AckWait. When the worker cannot renew the lease, because its process is stopped
// or the server is away, the contexts of its handlers end with a [*LimitLostError], before another worker takes the permits: there are
// never more than Concurrency handlers with a live context. A handler that ignores the end of its context can run in addition. The permits
// of a killed worker are free within two AckWaits, those of a stopping worker at once.
//
// If another worker may have been given a waiting job, the worker reads the job at the leader of its stream before the start, and drops it
// when it is gone: one round trip, see README.md.
//
// A job with several limits waits for one at a time and holds no permit of another in the meantime, except in the last second
// before its start is due. A start that another limit then does not allow is lost.
type Limit struct {
	// Burst is the number of starts that may be made at once after a pause. Defaults to 1.
	Burst int

	// Concurrency is the number of handlers that may run at once. Defaults to no limit, at most 1,000,000.
	Concurrency int

	// Key returns the text under which a job counts, from its Info, its headers and its published payload: a tenant, a host. Each key has the
	// whole limit to itself. The text is never stored, only its hash. Defaults to one key for all jobs.
	Key func(info Info, header nats.Header, payload []byte) string

	// Name identifies the limit: limits of the same name, of any handler and worker, are one limit. They should have the same settings, since
	// each worker applies its own. Letters, digits, "-" and "_", at most 64. Required.
	Name string

	// Per is the time in which Rate jobs may start. At least Rate microseconds, at most 31 days.
	Per time.Duration

	// Rate is the number of jobs that start in Per, evenly spaced, after the first Burst: no period of Per has more than Rate plus Burst
	// starts. When the clocks of machines differ, the starts that are due within the difference come in addition. Defaults to no limit.
	Rate int

	// Subjects is the pattern of the jobs that the limit is for, among those of the handler. Defaults to all of them.
	Subjects string

	// Turns makes Rate limit the calls of [Turn] in the handlers, instead of the starts of jobs: for jobs that call a
	// provider more than once, or sometimes not at all. Defaults to false.
	Turns bool
}

// Turn waits until the limit with this name allows the handler another call of a provider. The limit has to be one of the handler's limits
// with Limit.Turns. ctx is the context of the handler, or derived from it; when it ends, Turn returns its cause. The job keeps its slot
// and its permits. A turn that was granted and not used is lost to all workers. It costs one write, shared by all jobs that wait
// in the worker. Turn returns at once outside a worker, and for a job that Limit.Subjects leaves out. When the handler has no such limit,
// Turn returns an error.
func Turn(ctx context.Context, name string) error {
	r, ok := ctx.Value(attemptKey{}).(*attemptContext)
	if !ok {
		return nil
	}
	if err := r.worker.awaitTurn(ctx, r.delivery, name); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("worker: turn of limit %s: %w", redact.Quote(name), err)
	}
	return nil
}

func (w *Worker) awaitTurn(ctx context.Context, d *delivery, name string) error {
	at := slices.IndexFunc(d.policy.Limits, func(l Limit) bool { return l.Turns && l.Name == name })
	if at < 0 {
		return fmt.Errorf("the policy of %q has no limit of that name with Turns", d.info.Pattern)
	}
	l := d.policy.Limits[at]
	if !l.covers(d) {
		return nil
	}
	rules := []limit.Rule{ruleOf(d, l, l.turnSpec())}
	for {
		_, err := w.limits.Enter(ctx, limit.Entry{Lost: func(error) {}, Rules: rules, Sequence: d.info.Sequence})
		full, crowded := errors.AsType[*limit.FullError](err)
		if !crowded || !retry.Sleep(ctx, full.Delay) {
			return err
		}
	}
}

// LimitLostError is the cause of the end of a handler's context when its permit is no longer held. Unless the handler returns nil all the
// same, its job is given back at once, and the attempt does not count.
type LimitLostError struct {
	// Cause is the reason that the permit was lost.
	Cause error
}

// Error implements error.
func (e *LimitLostError) Error() string {
	return fmt.Sprintf("worker: the job may not run any longer: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *LimitLostError) Unwrap() error { return e.Cause }

var limitName = regexp.MustCompile(`^[-_A-Za-z0-9]{1,64}$`)

// checkLimits returns an error that names all mistakes of a policy's limits. Defaults must be set before.
func checkLimits(limits []Limit) error {
	err := validate.If(len(limits) > MaxLimits, "worker: Policy.Limits are %d: use at most %d", len(limits), MaxLimits)
	seen := make(map[string]bool)
	for i, l := range limits {
		field := fmt.Sprintf("worker: Policy.Limits[%d]", i)
		bad := subject.CheckPattern(cmp.Or(l.Subjects, ">"))
		err = errors.Join(err,
			validate.If(!limitName.MatchString(l.Name), "%s.Name is %s: use 1 to 64 letters, digits, '-' and '_'", field, redact.Quote(l.Name)),
			validate.If(seen[l.Name], "%s.Name is %q, as that of another: use each once", field, l.Name),
			validate.If(l.Concurrency < 0 || l.Concurrency > MaxPermits,
				"%s.Concurrency is %d: use 1 to %d, or 0 for no limit", field, l.Concurrency, MaxPermits),
			validate.If(l.Rate < 0 || l.Rate > MaxPermits || l.Burst < 1 || l.Burst > MaxPermits,
				"%s.Rate is %d and Burst %d: use 1 to %d, or 0 for no limit", field, l.Rate, l.Burst, MaxPermits),
			validate.If(l.Rate == 0 && (l.Concurrency == 0 || l.Turns),
				"%s has neither Concurrency nor Rate, or Turns without Rate: use one of them, or both", field),
			validate.If(bad != nil, "%s.Subjects is %s: not a subject filter: %w", field, redact.Quote(l.Subjects), bad),
			validate.If(l.Rate > 0 && (l.Per < time.Duration(l.Rate)*time.Microsecond || l.Per > longestPer),
				"%s.Per is %s: use at least %d microseconds (those of Rate), at most %s", field, l.Per, l.Rate, longestPer))
		seen[l.Name] = true
	}
	return err
}

// spec returns the part of a limit for the start of jobs, without the key.
func (l Limit) spec() limit.Spec {
	if l.Turns {
		return limit.Spec{Concurrency: l.Concurrency, Name: l.Name}
	}
	return limit.Spec{Burst: l.Burst, Concurrency: l.Concurrency, Name: l.Name, Per: l.Per, Rate: l.Rate}
}

// turnSpec returns the part of a limit for turns. No name of a limit has a dot.
func (l Limit) turnSpec() limit.Spec {
	return limit.Spec{Burst: l.Burst, Name: l.Name + ".turns", Per: l.Per, Rate: l.Rate}
}

// covers reports whether the limit applies to a job.
func (l Limit) covers(d *delivery) bool {
	return l.Subjects == "" || subject.Matches(l.Subjects, d.info.Subject)
}

// checkSameLimits returns an error for limits of one name that differ between handlers of this worker.
func (w *Worker) checkSameLimits(added *route) error {
	for _, r := range w.routes {
		for _, have := range r.policy.Limits {
			for _, l := range added.policy.Limits {
				if l.Name == have.Name && (l.spec() != have.spec() || l.Turns != have.Turns || l.turnSpec() != have.turnSpec()) {
					return fmt.Errorf("worker: handle %q: limit %q differs from that of %q: %+v and %+v",
						added.pattern, l.Name, r.pattern, l.spec(), have.spec())
				}
			}
		}
	}
	return nil
}

// openLimits is called when Run begins.
func (w *Worker) openLimits(records *kvrecord.Client) {
	if !w.limited {
		return
	}
	w.limits = limit.New(limit.Config{
		Conn: w.nc, Records: records.Bucket(w.cfg.Bucket), Lease: w.cfg.AckWait, Request: w.cfg.RequestTimeout, Waiting: w.cfg.MaxWaiting,
		Failed: func(err error) { w.log.Warn(EventLimitFailed, "error", err) },
		Lost:   func(err error) { w.log.Warn(EventLimitLost, "error", err) },
	})
}

// acquirePermits waits until the limits of a job let it run.
func (w *Worker) acquirePermits(d *delivery, cancel context.CancelCauseFunc) (*limit.Permit, error) {
	s := &slot{delivery: d, worker: w}
	defer s.end()
	permit, err := w.limits.Enter(w.stopping, limit.Entry{
		Rules: rulesOf(d), Slot: s, Sequence: d.info.Sequence,
		Lost: func(err error) {
			d.interrupted.Store(true)
			cancel(&LimitLostError{Cause: err})
		},
	})
	full, crowded := errors.AsType[*limit.FullError](err)
	_, unreadable := errors.AsType[*limit.RecordError](err)
	switch {
	case errors.Is(err, limit.ErrClosed):
		<-w.drained // as in acquireSlot
		return nil, errNotStarted
	case unreadable:
		return nil, fmt.Errorf("%w: %w", errLimitUnreadable, err)
	case crowded:
		w.releaseSlot(d) // for jobs that can start while this job is given back
		return nil, refused(OutcomeLimited, full.Delay, err.Error())
	}
	return permit, err
}

// rulesOf computes the keys under which a job counts.
func rulesOf(d *delivery) (rules []limit.Rule) {
	for _, l := range d.policy.Limits {
		if spec := l.spec(); (spec.Concurrency > 0 || spec.Rate > 0) && l.covers(d) {
			rules = append(rules, ruleOf(d, l, spec))
		}
	}
	limit.Sort(rules)
	return rules
}

// ruleOf computes the key under which a job counts. A panic of Limit.Key fails the attempt.
func ruleOf(d *delivery, l Limit, spec limit.Spec) limit.Rule {
	rule := limit.Rule{Spec: spec}
	if l.Key != nil {
		rule.Key = l.Key(d.info, d.msg.Header, d.msg.Data)
	}
	return rule
}

// slot is the slot of a job, which the job leaves while it waits for a limit. Its methods are called one at a time.
type slot struct {
	delivery *delivery
	parked   bool
	shown    bool
	worker   *Worker
}

// Give leaves the slot to other jobs, and reports whether the job had one.
func (s *slot) Give() bool {
	if !s.delivery.hasSlot {
		return false
	}
	s.parked, s.delivery.waited = true, true
	s.worker.deliveries.parked.Add(1)
	s.worker.releaseSlot(s.delivery)
	s.worker.puller.Freed()
	s.show(true)
	return true
}

// Take takes a slot if one is free, and reports whether the job has one.
func (s *slot) Take() bool {
	if s.delivery.hasSlot {
		return true
	}
	if !s.worker.slots.tryAcquire() {
		return false
	}
	s.parked, s.delivery.hasSlot = false, true
	s.worker.deliveries.parked.Add(-1)
	return true
}

// end ends the wait.
func (s *slot) end() {
	s.show(false)
	if s.parked {
		s.worker.deliveries.parked.Add(-1)
	}
}

// show calls the hook.
func (s *slot) show(waits bool) {
	if s.shown != waits && s.worker.cfg.Hooks.Waiting != nil {
		s.worker.apart("Hooks.Waiting", func() { s.worker.cfg.Hooks.Waiting(s.delivery.info, waits) })
	}
	s.shown = waits
}

// slots are the slots of a worker: a semaphore that serves the waiter with the highest rank first.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // the highest rank first, then the oldest
}

type waiter struct {
	given chan struct{} // closed with a slot
	rank  int
}

// acquire waits for a slot, and reports whether it got one before done was closed and longest passed. 0 is no bound.
// The waiter with the highest rank gets a slot first.
func (s *slots) acquire(rank int, done <-chan struct{}, longest time.Duration) bool {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	w := &waiter{given: make(chan struct{}), rank: rank}
	i := slices.IndexFunc(s.waiting, func(other *waiter) bool { return other.rank < rank })
	if i < 0 {
		i = len(s.waiting)
	}
	s.waiting = slices.Insert(s.waiting, i, w)
	s.mu.Unlock()
	return s.wait(w, done, longest)
}

// tryAcquire takes a slot if one is free, and reports whether it did.
func (s *slots) tryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

func (s *slots) wait(w *waiter, done <-chan struct{}, longest time.Duration) bool {
	var late <-chan time.Time
	if longest > 0 {
		late = time.After(longest)
	}
	select {
	case <-w.given:
		return true
	case <-done:
	case <-late:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return true // the slot was given in the meantime
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return false
}

// release returns a slot.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	close(s.waiting[0].given)
	s.waiting = slices.Delete(s.waiting, 0, 1)
}

// releaseSlot frees the slot of a delivery that has one.
func (w *Worker) releaseSlot(d *delivery) {
	if !d.hasSlot {
		return
	}
	d.hasSlot = false
	w.slots.release()
	w.limits.Freed()
}
