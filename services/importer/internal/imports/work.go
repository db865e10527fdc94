package imports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
)

const (
	// jobTimeout bounds one attempt at a job.
	jobTimeout = 15 * time.Minute

	// jobAttempts is the number of attempts at a job in all. It is larger than Config.SourceAttempts, because the death
	// of a worker uses an attempt too.
	jobAttempts = 10

	// storeSnooze is the pause after NATS did not answer. It uses no attempt of the job.
	storeSnooze = time.Second
)

var (
	// errTakenBack ends an attempt at a job that was cancelled or restarted in the meantime.
	errTakenBack = errors.New("importer: the job was taken back")

	// errEnded ends an attempt at a job that another attempt, or another message of the job, has ended.
	errEnded = errors.New("importer: the job has ended elsewhere")
)

// Policy returns the policy by which the worker runs [Service.Work].
func Policy() worker.Policy {
	return worker.Policy{
		Backoff:     worker.Exponential(2*time.Second, 2*time.Minute),
		Decode:      contracts.DecodeArgs[contracts.ImportJob],
		MaxAttempts: jobAttempts,
		Timeout:     jobTimeout,
	}
}

// attempt is one attempt at a job.
type attempt struct {
	*Service

	job    *worker.Job[contracts.ImportJob]
	id     string
	run    int
	replay bool
	cancel context.CancelCauseFunc
	memory *memory.Share
	record record // as it was when the attempt began

	admitted string // the remote service that the attempt may call although other jobs wait for it

	started time.Time
}

// Work makes a recipe of one source. Steps that ended before a crash are not repeated.
func (s *Service) Work(ctx context.Context, job *worker.Job[contracts.ImportJob]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{
		Service: s, job: job, id: job.Args.JobID, run: 1, replay: job.Header.Get(worker.HeaderReplay) != "", cancel: cancel, started: time.Now(),
		memory: s.memory.Share(),
	}
	defer a.memory.Leave()
	if n, err := strconv.Atoi(job.Header.Get(HeaderRun)); err == nil {
		a.run = n
	}
	proceed, err := a.begin(ctx)
	if err != nil || !proceed {
		return a.outcome(ctx, err)
	}
	a.passed(PointBegun)
	stop := a.watch(ctx)
	err = a.inTurn(ctx)
	stop()
	return a.outcome(ctx, err)
}

// begin sets the job RUNNING. It reports false when there is nothing to do: the job has ended, here or in the store,
// or was restarted under another message.
func (a *attempt) begin(ctx context.Context) (bool, error) {
	sourceID, err := a.cfg.Fetcher.Identify(ctx, sourceOf(a.job.Args))
	identified := err
	ended := false
	var held *FailedError
	r, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		ended = false
		switch {
		case r == nil:
			fresh := newRecord(a.job.Args, sourceID, time.Now().UTC())
			fresh.Run = a.run
			r = &fresh
		case !r.same(a.job.Args, sourceID):
			return nil, worker.Discard(fmt.Errorf("%w: %.64q", ErrMismatch, a.id))
		case r.Status.Final() && !a.runsAgain(r), a.run < r.Run && !a.replay:
			ended = true
			return nil, errKeep
		case r.WaitingFor != "" && r.WaitingFor != a.admitted:
			if held = a.remotes.enter(r.WaitingFor, caller{r.OwnerID, a.id}); held != nil {
				return nil, errKeep
			}
			a.admitted = r.WaitingFor
		}
		r.begin(a.job.Attempt)
		r.Message = a.job.Sequence
		return r, nil
	})
	if err != nil {
		return false, err
	}
	a.record, a.run = r, r.Run
	if held != nil {
		waited := time.Since(r.OutageSince)
		if waited+firstPause > a.cfg.OutagePatience && !held.Refused {
			held.Err = nil // without errHeld the failure ends the job, which has waited for the whole time
			return false, held
		}
		return false, worker.Snooze(held.snooze(0))
	}
	if ended {
		return false, a.again(ctx)
	}
	if identified != nil {
		return false, identified
	}
	if r.Crashes >= maxCrashes+maxAlone {
		return false, &FailedError{
			Code: failure.Crashed, Message: "The import's workers ended in the middle of it, the last two while they did nothing else",
			Retryable: true, Exhausted: true,
		}
	}
	a.log(ctx, slog.LevelInfo, EventStarted, a.id, slog.String("url", r.URL), slog.Int("attempt", a.job.Attempt), slog.Int("run", r.Run))
	a.passed(PointRunning)
	return a.checkStore(ctx)
}

// runsAgain reports whether a failed job is to run again, because its dead letter was replayed.
func (a *attempt) runsAgain(r *record) bool {
	return a.replay && r.Status == contracts.ImportFailed && r.Message != a.job.Sequence && r.Code != failure.Cancelled
}

// again ends an attempt at a job that has ended. It finishes the steps after the end that are still open.
func (a *attempt) again(ctx context.Context) error {
	r := a.record
	if !r.Status.Final() {
		return nil // another message has ended the job
	}
	a.log(ctx, slog.LevelInfo, EventSkipped, a.id, slog.String("status", string(r.Status)))
	if a.job.Attempt > 1 {
		r.Reported = false // the store may have received the beginning of the previous attempt after the end of the job
	}
	return a.conclude(ctx, &r)
}

// watch ends the attempt when the job is cancelled, removed or rerun in the meantime. It reads the record when a change is pushed,
// and every two seconds.
func (a *attempt) watch(ctx context.Context) (stop func()) {
	key, err := jobKey(a.id)
	if err != nil {
		return func() {}
	}
	changed, unlisten := a.hub.listen(key)
	changes, ended := &Subscription{changed: changed}, make(chan struct{})
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		for changes.wait(ctx) == nil {
			r, _, err := a.read(ctx, a.id)
			if errors.Is(err, ErrUnknownJob) || err == nil && a.takenBack(&r) {
				a.cancel(errTakenBack)
				return
			}
		}
	}()
	return func() {
		end()
		<-ended
		unlisten()
	}
}

func (a *attempt) takenBack(r *record) bool {
	return r == nil || r.Run != a.run || r.Code == failure.Cancelled
}

// enterStep records the step that the job is in. It returns errTakenBack or errEnded when there is nothing left to
// do.
func (a *attempt) enterStep(ctx context.Context, name string) error {
	_, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		switch {
		case a.takenBack(r):
			return nil, errTakenBack
		case r.Status.Final():
			return nil, errEnded
		case r.Status != contracts.ImportRunning, r.Step == name && r.Attempt == a.job.Attempt:
			return nil, errKeep
		}
		r.Step, r.Progress, r.Attempt, r.Error = name, 0, a.job.Attempt, ""
		r.WaitingFor, r.WaitingSince = "", time.Time{}
		return r, nil
	})
	return err
}

// outcome returns the error of an attempt for the worker, by the state of the job's record and of the store.
func (a *attempt) outcome(ctx context.Context, err error) error {
	var snooze *worker.SnoozeError
	var given *worker.DiscardError
	switch {
	case err == nil, errors.As(err, &snooze), errors.As(err, &given):
		return err
	case errors.Is(err, step.ErrFenced):
		return err
	case errors.Is(err, errTakenBack), errors.Is(err, errEnded), errors.Is(context.Cause(ctx), errTakenBack):
		return a.leave(context.WithoutCancel(ctx))
	case errors.Is(context.Cause(ctx), worker.ErrShutdown), errors.Is(context.Cause(ctx), step.ErrFenced):
		a.log(ctx, slog.LevelInfo, EventInterrupted, a.id, slog.String("error", err.Error()))
		return err
	case errors.Is(err, kvrecord.ErrUnavailable), errors.Is(err, kvlock.ErrUnavailable), errors.Is(err, kvlock.ErrClosed),
		errors.Is(err, step.ErrNotRecorded):
		a.log(ctx, slog.LevelWarn, EventInterrupted, a.id, slog.String("error", err.Error()))
		return worker.Snooze(storeSnooze)
	}
	_, timedOut := errors.AsType[*worker.TimeoutError](context.Cause(ctx))
	if timedOut || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = &FailedError{Code: failure.Timeout, Message: "The import took too long", Retryable: true, Err: err}
	}
	return a.fail(context.WithoutCancel(ctx), failureOf(err))
}

// leave ends an attempt at a job that was cancelled, restarted, or ended elsewhere. This attempt may have sent the
// store the beginning of the job after another attempt sent the end, so leave sends the end again.
func (a *attempt) leave(ctx context.Context) error {
	cancelled := false
	r, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		cancelled = false
		switch {
		case r == nil || r.Run != a.run:
			return nil, errTakenBack
		case !r.Status.Final(): // the record that ended the attempt was an old one
			return nil, worker.Snooze(storeSnooze)
		}
		cancelled = r.Code == failure.Cancelled && !r.Reported
		if !r.Reported {
			return nil, errKeep
		}
		r.Reported = false
		return r, nil
	})
	switch {
	case errors.Is(err, errTakenBack): // by another run, which does the rest
		return nil
	case err != nil:
		return worker.Snooze(storeSnooze)
	case cancelled:
		a.ended(ctx, &r, a.started)
	}
	return a.conclude(ctx, &r)
}

// conclude sends the store the end of a job, and returns the error for the worker. A job that failed with this message becomes a dead
// letter.
func (a *attempt) conclude(ctx context.Context, r *record) error {
	if err := a.reportEnd(ctx, r); err != nil {
		return err
	}
	if r.Exhausted && r.Message == a.job.Sequence {
		return worker.Discard(errors.New(r.Error))
	}
	return nil
}

// outwaits returns how long a job has waited for the end of an outage, and whether it is to wait no longer.
func (a *attempt) outwaits(r *record, f *FailedError) (waited time.Duration, last bool) {
	waited = r.waits(f.Outage)
	last = waited+firstPause > a.cfg.OutagePatience && !f.Refused && !errors.Is(f, errHeld)
	if f.Alone {
		r.Alone++
		last = last || r.Alone >= a.cfg.SourceAttempts && waited >= lastPause
	}
	return waited, last
}

// fail puts off a job after a failure, or ends it.
func (a *attempt) fail(ctx context.Context, f *FailedError) error {
	last := !f.Retryable || f.Exhausted || a.job.Attempt >= a.cfg.SourceAttempts
	changed := false
	var waited time.Duration
	r, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		changed = false
		if a.takenBack(r) || r.Status.Final() {
			return nil, errKeep
		}
		changed = true
		if f.Outage != "" {
			waited, last = a.outwaits(r, f)
		}
		if !last {
			r.Error, r.Progress = f.Message, 0
			if r.Step == stepCreate {
				r.Step = "" // the job may be cancelled while it waits
			}
			return r, nil
		}
		step := r.Step
		r.enter(contracts.ImportFailed, a.job.Attempt)
		r.Code, r.Error, r.Step, r.Retryable = f.Code, f.Message, step, f.Retryable
		r.Exhausted, r.Message = f.Retryable, a.job.Sequence
		return r, nil
	})
	if err != nil {
		a.logger.WarnContext(ctx, "importer: the state of a job could not be written", "job_id", a.id, "error", err)
		return worker.Snooze(storeSnooze)
	}
	attrs := []slog.Attr{
		slog.String("code", string(f.Code)), slog.String("step", r.Step), slog.Int("attempt", a.job.Attempt), slog.String("error", f.Message),
	}
	switch {
	case !changed:
		return a.leave(ctx)
	case !last:
		a.log(ctx, slog.LevelWarn, EventPutOff, a.id, append(attrs, slog.String("waiting_for", r.WaitingFor))...)
		if f.Outage != "" {
			return worker.Snooze(f.snooze(waited))
		}
		if f.Page {
			f.RetryAfter = max(f.RetryAfter, firstPause<<(2*(a.job.Attempt-1)))
		}
		if f.RetryAfter > 0 {
			return worker.Retry(min(f.RetryAfter, maxRetryAfter), f)
		}
		return f
	}
	level := slog.LevelInfo // a failure of the source
	if r.Exhausted {
		level = slog.LevelError
	}
	a.log(ctx, level, EventFailed, a.id, attrs...)
	a.ended(ctx, &r, a.started)
	if err := a.reportEnd(ctx, &r); err != nil {
		return err
	}
	if r.Exhausted {
		return worker.Discard(f)
	}
	return nil
}
