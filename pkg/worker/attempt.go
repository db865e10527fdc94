package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/excuse"
)

// unhandledDelay is how long a message without a handler is put off. It happens while
// workers of two versions share a consumer, so another one may know the subject.
const unhandledDelay = 5 * time.Second

var (
	errExhausted  = errors.New("worker: attempts exhausted: the worker of the last attempt ended before it could report")
	errNotStarted = errors.New("worker: stopped before the job started")
	errUnhandled  = errors.New("worker: no handler for this subject")
)

// deliver takes a message from the puller. It does not block.
func (w *Worker) deliver(msg *nats.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		w.log.Error(EventJobUnknown, "subject", msg.Subject, "error", err)

		return
	}

	d := &delivery{
		beating: true, deliveries: int(meta.NumDelivered), first: int(meta.NumDelivered), msg: msg, reply: msg.Reply, //nolint:gosec // small
		info: Info{
			Consumer: meta.Consumer, Deliveries: int(meta.NumDelivered), EnqueuedAt: meta.Timestamp, //nolint:gosec // small
			ID: jobID(msg.Header, meta.Stream, meta.Sequence.Stream), Sequence: meta.Sequence.Stream,
			Stream: meta.Stream, Subject: msg.Subject,
		},
	}
	if !w.table.add(d) {
		return
	}

	w.running.Add(1)

	go w.process(d)
}

// process takes a delivery to its end. The handler runs on this goroutine: when it calls
// runtime.Goexit, the deferred part still settles the job and frees the slot.
func (w *Worker) process(d *delivery) {
	defer func() {
		abandoned := w.table.remove(d)
		w.puller.Freed()

		if !abandoned {
			w.running.Done()
		}
	}()

	if !w.takeSlot() {
		w.finish(d, errNotStarted)

		return
	}

	defer func() { <-w.slots }()

	err := ErrGoexit
	defer func() { w.finish(d, err) }()

	err = w.attempt(d)
}

// takeSlot waits for a free slot. There is one, unless a request that was given up for
// lost brought messages after all. It reports false when the worker stops first, but only
// after the last request has ended: a job handed back before could come here again.
func (w *Worker) takeSlot() bool {
	if w.stopping.Err() == nil {
		select {
		case w.slots <- struct{}{}:
			return true
		case <-w.stopping.Done():
		}
	}

	<-w.drained

	return false
}

// attempt runs the handler of d once, if it has attempts left.
func (w *Worker) attempt(d *delivery) error {
	route := w.routeOf(d.info.Subject)
	if route == nil {
		return errUnhandled
	}

	d.policy, d.info.MaxAttempts = route.policy, route.policy.MaxAttempts
	d.info.Attempt = w.countAttempt(d)

	if d.info.Attempt > d.info.MaxAttempts {
		return errExhausted
	}

	ctx, cancel := context.WithCancel(w.jobs)
	defer cancel()

	if timeout := d.policy.Timeout; timeout > 0 {
		var stop context.CancelFunc

		ctx, stop = context.WithTimeoutCause(ctx, timeout, &TimeoutError{Timeout: timeout})
		defer stop()
	}

	if !w.table.begin(d, time.Now()) {
		return errNotStarted
	}

	if w.cfg.Hooks.Started != nil {
		w.cfg.Hooks.Started(d.info)
	}

	return explain(ctx, call(ctx, route, d))
}

// call runs the handler and turns a panic into an error.
func call(ctx context.Context, r *route, d *delivery) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Stack: debug.Stack(), Value: value}
		}
	}()

	return r.work(ctx, d.info, d.msg)
}

// explain adds why the context ended to an error that came of it.
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}

	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return errors.Join(err, cause)
	}

	return err
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
		w.log.Warn(EventExcuseFailed, append(d.attrs(), "error", err)...)

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
