package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/excuse"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/limit"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

// unhandledDelay is how long a message without a handler is put off. It happens while
// workers of two versions share a consumer, so another one may know the subject.
const unhandledDelay = 5 * time.Second

var (
	errExhausted  = errors.New("worker: attempts exhausted: the worker of the last attempt ended before it could report")
	errNotStarted = errors.New("worker: stopped before the job started")
	errUnhandled  = errors.New("worker: no handler for this subject")
)

// deliver takes a message from the puller and returns how many wait behind it. It does not
// block.
func (w *Worker) deliver(msg *nats.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		w.log.Error(EventJobUnknown, "subject", msg.Subject, "error", err)

		return 0
	}

	d := &delivery{
		beating: true, deliveries: int(meta.NumDelivered), first: int(meta.NumDelivered), msg: msg, reply: msg.Reply, //nolint:gosec // small
		info: Info{
			Consumer: meta.Consumer, Deliveries: int(meta.NumDelivered), EnqueuedAt: meta.Timestamp, //nolint:gosec // small
			ID: jobID(msg.Header, meta.Stream, meta.Sequence.Stream), Sequence: meta.Sequence.Stream,
			Stream: meta.Stream, Subject: msg.Subject,
		},
	}

	switch w.table.add(d, time.Now()) {
	case fresh:
		w.running.Add(1)

		go w.process(d)
	case late:
		w.running.Add(1)

		go w.again(d)
	case copied:
	}

	return meta.NumPending
}

// process takes a delivery to its end. The handler runs on this goroutine: when it calls
// runtime.Goexit, the deferred part still settles the job and frees the slot.
func (w *Worker) process(d *delivery) {
	defer func() {
		abandoned := w.table.remove(d, time.Now())
		w.puller.Freed()

		if !abandoned {
			w.running.Done()
		}
	}()

	if !w.takeSlot(d) {
		w.finish(d, errNotStarted)

		return
	}

	d.seated = true
	defer func() { w.leaveSlot(d) }()

	err := ErrGoexit
	defer func() { w.finish(d, err) }()

	err = w.attempt(d)
}

// takeSlot waits for a free slot. There is one, unless a request that was given up for
// lost brought messages after all, or jobs that had waited for their priority or a limit took
// the slots. It reports false when the worker stops first, but only after the last request
// has ended: a job handed back before could come here again. With several priorities, or
// limits, it does so after heldFor, too: no request of this one is left then.
func (w *Worker) takeSlot(d *delivery) bool {
	var longest time.Duration
	if len(w.classes) > 1 || w.limited {
		longest = heldFor
	}

	if w.stopping.Err() == nil && w.slots.Take(int(w.classOf(d.info.Consumer).priority), w.stopping.Done(), longest) {
		return true
	}

	if w.stopping.Err() != nil {
		<-w.drained
	}

	return false
}

// attempt runs the handler of d once, if it has attempts left.
func (w *Worker) attempt(d *delivery) error {
	route := w.routeOf(d.info.Subject)
	if route == nil {
		return errUnhandled
	}

	d.policy, d.info.MaxAttempts, d.info.Pattern = route.policy, route.policy.MaxAttempts, route.pattern

	ctx, cancel := context.WithCancelCause(w.jobs)
	defer cancel(nil)

	pass, err := w.admit(d, cancel)
	defer pass.Leave()

	if err != nil {
		return err
	}

	if _, unique := keepOf(d.msg.Header); unique {
		d.cancel = cancel
	}

	if route.batches != nil {
		if err := w.gather(ctx, d, route.batches); err != nil {
			return err
		}
		defer d.seat.Leave()
	}

	return w.begin(ctx, cancel, route, d)
}

// begin runs the handler of d, for which everything is there.
func (w *Worker) begin(ctx context.Context, cancel context.CancelCauseFunc, route *route, d *delivery) error {
	if timeout := d.policy.Timeout; timeout > 0 {
		var stop context.CancelFunc

		ctx, stop = context.WithTimeoutCause(ctx, timeout, &TimeoutError{Timeout: timeout})
		defer stop()
	}

	if d.seat == nil {
		d.mark = stacks.New()
	}

	if !w.table.begin(d, time.Now()) {
		return errNotStarted
	}

	if w.cfg.Hooks.Started != nil {
		w.cfg.Hooks.Started(d.info)
	}

	d.journal = w.openJournal(d, cancel)
	defer d.journal.Close()

	ctx = context.WithValue(ctx, reporterKey{}, &reporter{delivery: d, worker: w})

	return explain(ctx, w.call(journal.With(ctx, d.journal), route, d))
}

// admit finds out whether the job may run, and counts the attempt. What it returns may be
// nil.
func (w *Worker) admit(d *delivery, cancel context.CancelCauseFunc) (pass *limit.Pass, err error) {
	if len(d.policy.Limits) > 0 {
		if pass, err = w.enter(d, cancel); err != nil {
			return nil, err
		}
	}

	if err := w.recall(d); err != nil {
		return pass, err
	}

	d.info.Attempt = w.countAttempt(d)

	if d.info.Attempt > d.info.MaxAttempts {
		return pass, errExhausted
	}

	return pass, w.mark(d)
}

// call runs the handler inside the middleware and turns a panic into an error.
func (w *Worker) call(ctx context.Context, r *route, d *delivery) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Stack: debug.Stack(), Value: value}
		}
	}()

	work := func(ctx context.Context) error { return r.work(ctx, d.info, d.msg) }
	work = wrap(w.cfg.Middleware, d.info, d.msg.Header, work)

	stacks.Do(ctx, d.mark, r.labels, func(ctx context.Context) { err = work(ctx) })

	return err
}

// explain adds why the context ended to an error that came of it. Whatever a handler says
// whose job has been cancelled comes of that.
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}

	cause := context.Cause(ctx)
	if errors.Is(err, cause) || !errors.Is(err, ctx.Err()) && !errors.Is(cause, ErrCancelled) {
		return err
	}

	return errors.Join(err, cause)
}

// countAttempt is the number of this attempt: deliveries that are not excused. The first
// delivery is the first attempt. Of a later one the excuses are read; when they cannot be,
// the job gets the benefit of the doubt and is never given up for attempts it may not have
// used.
func (w *Worker) countAttempt(d *delivery) int {
	if d.first <= 1 {
		return 1
	}

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()

	excused, err := w.excuses.Count(ctx, d.key())
	if err != nil {
		w.log.Warn(EventExcuseFailed, append(d.attrs(), "error", w.denial(err))...)

		return min(d.first, d.info.MaxAttempts)
	}

	return max(d.first-excused, 1)
}

func (d *delivery) key() excuse.Message {
	return excuse.Message{
		Stream: d.info.Stream, Consumer: d.info.Consumer, Sequence: d.info.Sequence, Stored: d.info.EnqueuedAt,
	}
}

func (d *delivery) attrs() []any {
	return []any{
		"job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence, "attempt", d.info.Attempt,
	}
}
