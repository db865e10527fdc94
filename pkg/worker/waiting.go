package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	// firstLook and lastLook bound the wait between two looks for the end of a job that another worker has, or that waits for its retry. The
	// wait doubles from look to look while that job stays the first, so its end is seen after at most about twice its time.
	firstLook = 10 * time.Millisecond
	lastLook  = 2 * time.Second
)

// errDoubted is the reason that an ordered job may not run.
var errDoubted = &refusal{
	outcome{kind: OutcomeFenced}, "worker: heartbeats were not confirmed, so another worker may have been given the job",
}

// awaitOrder waits until all jobs of the subject before d have ended. A waiting job leaves its slot. No round trip in a worker that has
// been the only one of the consumer for a while, otherwise one for each look.
func (w *Worker) awaitOrder(d *delivery) error {
	s := &jobSlot{delivery: d, worker: w}
	defer s.end()
	for wait, seen := firstLook, uint64(0); ; {
		if w.isTaken(d) { // all jobs of a line leave at once: if each left when its turn comes, each would wait for another AckWait
			return errDoubted
		}
		first, sure, from := w.lines.Look(d.line)
		if first {
			next, err := w.nextOf(d, sure, from)
			if err != nil {
				return err
			}
			if next == d.info.Sequence {
				w.lines.Start(d.line)
				return w.retake(s)
			}
			if next != seen { // jobs are ending: the next may end as soon
				wait, seen = firstLook, next
			}
		}
		if !s.parked && int(w.deliveries.parked.Load()) >= w.cfg.MaxWaiting {
			w.lines.SendBack(d.line)
		}
		if back := w.lines.SentBack(d.line); back > 0 {
			w.releaseSlot(d)
			return refused(OutcomeLimited, back, "worker: too many ordered jobs wait")
		}
		s.Give()
		var again <-chan time.Time // another worker's job ends without a sign
		if first {
			again, wait = time.After(wait), min(2*wait, lastLook)
		}
		select {
		case <-d.line.Turn:
			wait = firstLook
		case <-again:
		case <-w.stopping.Done():
			<-w.drained // as in acquireSlot
			return errNotStarted
		}
	}
}

// retake takes a slot for a job whose turn has come.
func (w *Worker) retake(s *jobSlot) error {
	d := s.delivery
	if !d.hasSlot {
		if !w.slots.acquire(int(d.class.priority), w.stopping.Done(), 0) {
			<-w.drained
			return errNotStarted
		}
		s.parked, d.hasSlot = false, true
		w.deliveries.parked.Add(-1)
	}
	return nil
}

// nextOf returns the sequence of the first message of a job's subject: of the job itself, or of an earlier one. One
// round trip, to the stream's leader, unless sure is true: no other is before the job.
func (w *Worker) nextOf(d *delivery, sure bool, from uint64) (uint64, error) {
	if sure {
		return d.info.Sequence, nil
	}
	msg, found, err := w.api.Get(w.settling, d.info.Stream, jsapi.Query{NextBySubject: d.info.Subject, Sequence: from})
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || msg.Sequence > d.info.Sequence:
		return 0, errGone
	default:
		return msg.Sequence, nil
	}
}

// interruptDoubted ends the contexts of ordered jobs that another worker may soon be given. It does so before AckWait is over, so that no
// worker runs the job, or the next one, beside a handler whose context is live. Waiting jobs leave.
func (w *Worker) interruptDoubted(now time.Time) {
	const margins = 30 // the number of margins in an AckWait: the next heartbeat would be one too late
	after := w.trust - w.cfg.AckWait/margins
	w.deliveries.each(func(d *delivery) {
		if d.line == nil || !d.doubted && elapsed(d.known, now) <= after {
			return
		}
		d.doubted = true
		d.line.Signal()
		if d.cancel != nil && !d.interrupted.Swap(true) {
			d.cancel(&LimitLostError{Cause: errDoubted})
		}
	})
}

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

// checkLimits returns an error that names all mistakes of a policy's limits. Defaults must be set before.
func checkLimits(limits []Limit) error {
	err := validate.If(len(limits) > MaxLimits, "worker: Policy.Limits are %d: use at most %d", len(limits), MaxLimits)
	seen := make(map[string]bool)
	for i, l := range limits {
		field := fmt.Sprintf("worker: Policy.Limits[%d]", i)
		bad := subject.CheckPattern(cmp.Or(l.Subjects, ">"))
		err = errors.Join(err,
			validate.If(!subject.IsName(l.Name, subject.MaxName),
				"%s.Name is %s: use 1 to 64 letters, digits, '-' and '_'", field, redact.Quote(l.Name)),
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
	s := &jobSlot{delivery: d, worker: w}
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

// jobSlot is the slot of a job, which the job leaves while it waits for a limit. Its methods are called one at a time.
type jobSlot struct {
	delivery *delivery
	parked   bool
	shown    bool
	worker   *Worker
}

// Give leaves the slot to other jobs, and reports whether the job had one.
func (s *jobSlot) Give() bool {
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
func (s *jobSlot) Take() bool {
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
func (s *jobSlot) end() {
	s.show(false)
	if s.parked {
		s.worker.deliveries.parked.Add(-1)
	}
}

// show calls the hook.
func (s *jobSlot) show(waits bool) {
	if s.shown != waits && s.worker.cfg.Hooks.Waiting != nil {
		s.worker.callApart("Hooks.Waiting", func() { s.worker.cfg.Hooks.Waiting(s.delivery.info, waits) })
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
	// The slot goes straight to the first waiter: a free slot could be taken by a job of lower rank.
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
	// A job that its limits let run may be waiting for nothing but the slot.
	w.limits.Freed()
}

const (
	// maxPauses bounds the record, which every worker reads at each heartbeat.
	maxPauses = 256

	// A job that is delivered although its handler is paused goes back for as long as the pause has lasted, within these bounds. So its cost
	// grows with the logarithm of the pause, and after a short pause it starts soon. A job that is delivered to a drained worker goes back
	// for the shortest time.
	shortestPause = 5 * time.Second
	longestPause  = 10 * time.Minute

	maxPaused = 32 // the largest number of pauses that an inspector gets
)

// Pause keeps jobs from starting.
type Pause struct {
	// By is a text for people, such as a name or the reason, of at most 256 bytes. Defaults to none.
	By string `json:"by,omitempty"`

	// Pattern is the pattern of a handler, or any other pattern of subjects. Required.
	Pattern string `json:"pattern"`

	// Since is the time at which the pause began. Client.Pause sets it.
	Since time.Time `json:"since"`

	// Until is the time at which the pause ends by itself, at most ten years ahead. Defaults to never: Client.Resume ends it.
	Until time.Time `json:"until,omitzero"`
}

// isOver reports whether a pause has ended by itself.
func (p Pause) isOver(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// Pause keeps jobs whose subjects match a pattern from starting, in all workers of the stream that have the client's bucket. It replaces
// another pause of the same pattern. A worker follows within AckWait/3, 5/3 seconds by default; a worker that starts later follows before
// its first job. A worker that cannot read the bucket goes on as before, or waits with its start. Running jobs end as usual.
//
// Paused jobs wait and use no attempt. If a pause covers all handlers of a consumer, those of one Policy.Priority, the worker leaves the
// jobs in the stream. Otherwise it gets jobs of paused handlers among the others, and hands each back for as long as the pause has lasted,
// between 5 seconds and 10 minutes. That costs a delivery, a read and a write each time, and the job starts up to that time after the end
// of the pause. If a handler with many jobs is to be paused, give it its own priority.
//
// The error is an [*UntakenError] when the stream has consumers and the pattern overlaps no filter of them. Three round trips.
func (c *Client) Pause(ctx context.Context, p Pause) error {
	p.Since = time.Now().UTC()
	err := subject.CheckPattern(p.Pattern)
	switch {
	case err != nil:
		return fmt.Errorf("worker: pause %s: not a subject filter: %w", redact.Quote(p.Pattern), err)
	case len(p.Pattern) > jobmsg.MaxSubject, len(p.By) > maxShort: // every worker reads them at each heartbeat
		return fmt.Errorf("worker: pause %s by %s: use at most %d bytes and %d",
			redact.Quote(p.Pattern), redact.Quote(p.By), jobmsg.MaxSubject, maxShort)
	case p.isOver(p.Since), p.Until.Sub(p.Since) > maxAhead:
		return fmt.Errorf("worker: pause %q until %s: use a time from now to %s ahead, or none", p.Pattern, p.Until, maxAhead)
	}
	known, err := jobmsg.ListTakers(ctx, c.api, c.cfg.Stream)
	overlaps := func(filter string) bool { return subject.Overlap(filter, p.Pattern) }
	if err == nil && len(known.Filters) > 0 && !slices.ContainsFunc(known.Filters, overlaps) {
		return &UntakenError{Filters: known.Filters[:min(len(known.Filters), maxFilters)], Stream: c.cfg.Stream, Subject: p.Pattern}
	}
	_, err = c.changePauses(ctx, p.Pattern, &p)
	return err
}

// Resume ends the pause of a pattern, and reports whether there was one. Workers follow within AckWait/3. Two round trips.
func (c *Client) Resume(ctx context.Context, pattern string) (paused bool, err error) {
	return c.changePauses(ctx, pattern, nil)
}

// Pauses returns the pauses in force, by pattern. One round trip.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	var msg jsapi.Message
	err := jsapi.Retry(ctx, c.cfg.SettleTimeout, func(ctx context.Context) (err error) {
		msg, _, err = c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: pausesSubject(c.cfg.Bucket, c.cfg.Stream)})
		return err
	})
	if err != nil {
		return nil, c.pausesError("read", err)
	}
	return decodePauses(msg.Data, time.Now())
}

// pausesError explains an error about the record of the pauses.
func (c *Client) pausesError(doing string, err error) error {
	if cause, ok := errors.AsType[*jetstream.APIError](err); ok && jsapi.IsNoStream(err) {
		return &MissingError{Asset: "bucket " + c.cfg.Bucket, Cause: cause, maker: "worker.CreateBucket", mends: true}
	}
	return fmt.Errorf("worker: %s the pauses: %w", doing, err)
}

// changePauses sets the pause of a pattern, or removes it when p is nil, and reports whether there was one.
func (c *Client) changePauses(ctx context.Context, pattern string, p *Pause) (was bool, err error) {
	records, err := kvrecord.New(kvrecord.Config{
		JetStream: c.js, Try: c.cfg.RequestTimeout, Timeout: max(c.cfg.SettleTimeout, c.cfg.RequestTimeout),
	})
	if err != nil {
		return false, fmt.Errorf("worker: %w", err)
	}
	defer records.Close()
	bucket, to := records.Bucket(c.cfg.Bucket), pausesSubject(c.cfg.Bucket, c.cfg.Stream)
	over, err := bucket.Latest(ctx, to)
	for err == nil {
		var all []Pause
		if all, err = decodePauses(over.Data, time.Now()); err != nil {
			break
		}
		before := len(all)
		all = slices.DeleteFunc(all, func(other Pause) bool { return other.Pattern == pattern })
		if was = len(all) < before; p != nil {
			all = append(all, *p)
		} else if !was {
			return false, nil
		}
		if len(all) > maxPauses {
			return was, fmt.Errorf("worker: pause %q: %d patterns are paused already", pattern, maxPauses)
		}
		var data []byte
		if data, err = json.Marshal(all); err != nil {
			break
		}
		_, err = bucket.Put(ctx, kvrecord.Write{Subject: to, Data: data, Over: over})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			break
		}
		over, err = conflict.Found, nil
	}
	if err != nil {
		return was, c.pausesError("change", err)
	}
	return was, nil
}

func pausesSubject(bucket, stream string) string { return "$KV." + bucket + ".paused." + stream }

// decodePauses returns the pauses of a record that have not ended, by pattern. No record has none.
func decodePauses(data []byte, now time.Time) (all []Pause, err error) {
	if len(data) > 0 {
		if err = json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("worker: the record of the pauses: %w", err)
		}
	}
	all = slices.DeleteFunc(all, func(p Pause) bool { return p.isOver(now) })
	slices.SortFunc(all, func(a, b Pause) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return all, nil
}

const pausedText = "worker: the handler is paused"

// readPauses reads the pauses. It is called before the worker pulls, and at each heartbeat.
func (w *Worker) readPauses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	msg, _, err := w.api.Get(ctx, "KV_"+w.cfg.Bucket, jsapi.Query{LastBySubject: pausesSubject(w.cfg.Bucket, w.cfg.Stream)})
	if err != nil {
		return fmt.Errorf("worker: read the pauses: %w", err)
	}
	all, err := decodePauses(msg.Data, time.Now())
	if err != nil {
		return err
	}
	if was := w.pauses.Swap(&all); w.cfg.Hooks.Paused != nil && (was == nil || len(*was) != len(all)) {
		w.callApart("Hooks.Paused", func() { w.cfg.Hooks.Paused(len(all)) })
	}
	return nil
}

// pausesNow returns the pauses in force.
func (w *Worker) pausesNow() []Pause {
	all := w.pauses.Load()
	if all == nil || len(*all) == 0 {
		return nil
	}
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(*all), func(p Pause) bool { return p.isOver(now) })
}

// checkPaused returns the error of a job that may not start now.
func (w *Worker) checkPaused(d *delivery) error {
	if w.draining.Load() {
		return refused(OutcomePaused, shortestPause, pausedText)
	}
	all := w.pauses.Load()
	if all == nil || len(*all) == 0 {
		return nil
	}
	now := time.Now()
	for _, p := range *all {
		if p.isOver(now) || !subject.Matches(p.Pattern, d.info.Subject) {
			continue
		}
		// The wait grows with the pause, so a long pause costs few deliveries, and after a short one the job starts soon.
		delay := min(max(now.Sub(p.Since), shortestPause), longestPause)
		if !p.Until.IsZero() {
			delay = min(delay, p.Until.Sub(now))
		}
		return refused(OutcomePaused, delay, pausedText)
	}
	return nil
}

// Paused reports whether jobs of a subject do not start in this worker now, because a known [Client.Pause] covers them, the worker is
// drained, or it has not started. It is for a caller that does the work of a job without the stream. No round trip.
func (w *Worker) Paused(of string) bool {
	return w.draining.Load() || w.pauses.Load() == nil ||
		slices.ContainsFunc(w.pausesNow(), func(p Pause) bool { return subject.Matches(p.Pattern, of) })
}

// isPaused reports whether all handlers of a consumer are paused, or the worker is drained.
func (w *Worker) isPaused(c *class) bool {
	if w.draining.Load() {
		return true
	}
	all := w.pausesNow()
	patterns := make([]string, len(all))
	for i, p := range all {
		patterns[i] = p.Pattern
	}
	return len(patterns) > 0 && consumer.Covers(patterns, c.patterns)
}
