package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// Run works jobs until ctx ends, then stops gracefully:
//
//  1. it asks for no more jobs, starts none, and hands back those that the last request
//     still brings, which takes up to a second;
//  2. handlers have Config.SoftStop to finish;
//  3. their contexts end with the cause [ErrShutdown], and they have Config.HardStop to
//     return; what they return then is a hand-back unless it is nil or a control error;
//  4. jobs still running are handed back and named in a [*StuckError].
//
// No hand-back uses an attempt. Run returns nil when every handler returned, and leaves
// no goroutine but those of stuck handlers.
//
// Before it pulls, Run checks the consumer, the bucket and the dead letter stream and
// returns a [*DriftError] or [*MissingError] for what is not as it must be. An unreachable
// server is no error: Run tries until it is there, at the start and later.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.routes) == 0 {
		return ErrNoHandler
	}

	if !w.started.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Run may be called once", ErrStarted)
	}

	if err := w.await(ctx, nil); err != nil || ctx.Err() != nil {
		return err
	}

	// Handlers must outlive ctx by the soft deadline, so theirs are not its children.
	var (
		root                = context.WithoutCancel(ctx)
		jobs, cancelJobs    = context.WithCancelCause(root)
		settling, endSettle = context.WithCancel(root)
		stopping, endPull   = context.WithCancel(ctx)
	)

	defer cancelJobs(nil)
	defer endSettle()
	defer endPull()

	w.down.Store(true)
	w.watch.lose()

	w.stopping, w.jobs, w.settling = stopping, jobs, settling
	w.puller = pull.New(pull.Config{
		Conn: w.nc, Deliver: w.deliver, Down: w.isDown, Free: func() int { return w.cfg.Concurrency - w.table.size() },
		Lost: w.recover, Sources: w.sources(), Up: w.isUp,
	})

	w.acks = newLastAcks(w.most())
	w.openLimits()

	beating := make(chan struct{})
	beats, endBeats := context.WithCancel(root)

	go func() {
		defer close(beating)
		w.heartbeat(beats)
	}()

	err := w.puller.Run(ctx)
	if err != nil {
		err = fmt.Errorf("worker: %w", err)
	}

	endPull()
	w.watching.Wait()
	close(w.drained)

	err = errors.Join(err, w.stop(cancelJobs, endSettle))
	w.limits.Close()
	endBeats()
	<-beating
	w.log.InfoContext(ctx, EventStopped)

	return err
}

// stop ends the deliveries that are still here.
func (w *Worker) stop(cancelJobs context.CancelCauseFunc, endSettle context.CancelFunc) error {
	w.log.Info(EventStopping, "running", w.table.size())

	idle := make(chan struct{})

	go func() {
		w.running.Wait()
		close(idle)
	}()

	if waitFor(idle, w.cfg.SoftStop) {
		return nil
	}

	cancelJobs(ErrShutdown)

	if waitFor(idle, w.cfg.HardStop) {
		return nil
	}

	stuck := w.abandon()

	// What is left are outcomes being recorded. They end by themselves when the server
	// answers; a server that is away gets one more request's time.
	if !waitFor(idle, w.cfg.RequestTimeout) {
		endSettle()
		<-idle
	}

	if len(stuck) == 0 {
		return nil
	}

	return &StuckError{Jobs: stuck}
}

// abandon hands back the jobs whose handlers did not return.
func (w *Worker) abandon() []Info {
	var group sync.WaitGroup

	running := w.table.close()
	dumps := dump(running)
	stuck := make([]Info, 0, len(running))

	for _, d := range running {
		stuck = append(stuck, d.info)

		group.Go(func() {
			defer w.running.Done()

			w.log.Error(EventJobStuck, append(d.attrs(), "ran", time.Since(d.started), "stacks", dumps[d.mark])...)

			v := verdict{excuse: true, outcome: OutcomeHandedBack}
			v.outcome = w.release(d, v)

			d.asking.End()
			w.report(d, v, ErrShutdown, time.Now())
		})
	}

	group.Wait()

	return stuck
}

// await returns when the server has what the worker needs, when ctx ends, or with an error
// that waiting does not mend. It logs the first failure only. With a reason the worker has
// been working before, and waits for everything.
func (w *Worker) await(ctx context.Context, reason error) error {
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		err := w.prepare(ctx, reason != nil)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // stopped before it began, which is no failure
		}

		if errors.Is(err, nats.ErrConnectionClosed) || reason == nil && isFinal(err) {
			return err
		}

		w.isDown(err)
		sleep(ctx, wait)
	}

	return nil
}

// isFinal reports whether an operator has to do something.
func isFinal(err error) bool {
	_, missing := errors.AsType[*MissingError](err)
	_, drifted := errors.AsType[*DriftError](err)

	return missing || drifted
}

// recover is called when the consumer cannot be pulled from. It returns when everything is
// there again. It waits a little first, longer each time: a leader change is over in a
// moment, and a server that has the consumer but does not serve it must not be hammered.
func (w *Worker) recover(ctx context.Context, reason error) {
	w.isDown(reason)

	const doublings = 5

	sleep(ctx, firstWait<<min(w.losses.Add(1)-1, doublings))

	_ = w.await(ctx, reason) //nolint:errcheck // only a closed connection, which the puller sees itself
}

// denial adds to silence what the server last refused this connection: a request that is
// not permitted gets no answer, and the refusal comes by another way.
func (w *Worker) denial(err error) error {
	last := w.nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) ||
		!errors.Is(err, pull.ErrSilent) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}

	return fmt.Errorf("%w (the connection's last error: %w)", err, last)
}

// isDown and isUp report a change of state, once.
func (w *Worker) isDown(reason error) {
	if !w.down.CompareAndSwap(false, true) {
		return
	}

	reason = w.denial(reason)
	w.log.Warn(EventLost, "error", reason)

	if w.cfg.Hooks.Ready != nil {
		w.cfg.Hooks.Ready(false, reason)
	}
}

func (w *Worker) isUp() {
	w.losses.Store(0)

	if !w.down.CompareAndSwap(true, false) {
		return
	}

	begin, acks := w.watch.begin(), w.acks.byConsumer()
	w.watching.Go(func() { w.contact(begin, acks) })

	w.log.Info(EventReady)

	if w.cfg.Hooks.Ready != nil {
		w.cfg.Hooks.Ready(true, nil)
	}
}

func waitFor(done <-chan struct{}, limit time.Duration) bool {
	if limit < 0 {
		limit = 0
	}

	timer := time.NewTimer(limit)
	defer timer.Stop()

	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
