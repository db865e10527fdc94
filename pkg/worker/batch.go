package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/batcher"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

// BatchHandler works several jobs in one call, as a rule in the order in which they came. Returning nil completes all of them.
// A [*BatchError] gives each an outcome of its own; any other error, a control error, a panic and a runtime.Goexit are the
// outcome of all.
type BatchHandler[T any] func(ctx context.Context, jobs []*Job[T]) error

// BatchPolicy says when a batch starts.
type BatchPolicy struct {
	// Size is the most jobs of a batch: with that many it starts. A job has a slot of Config.Concurrency from the moment it
	// waits for its batch, so this is at most Config.Concurrency. Defaults to 100, or to Config.Concurrency when that is less.
	Size int

	// Wait is how long the first job waits for others: then the batch starts with the jobs that are there. Jobs that come while
	// a batch runs are in the next one, which does not wait for it. Defaults to 1 second.
	Wait time.Duration
}

func (p BatchPolicy) withDefaults(concurrency int) BatchPolicy {
	const size = 100
	p.Size = cmp.Or(p.Size, min(size, concurrency))
	p.Wait = cmp.Or(p.Wait, time.Second)
	return p
}

func (p BatchPolicy) validate(concurrency int) error {
	var m mistakes
	if p.Size < 1 || p.Size > concurrency {
		m.addf("BatchPolicy.Size is %d: use 1 to Config.Concurrency, which is %d", p.Size, concurrency)
	}
	m.positive("BatchPolicy.Wait", p.Wait)
	return m.err()
}

// HandleBatch registers a handler that works the jobs whose subjects match pattern many at a time. See [Handle] for the
// pattern, and the policy, which holds for each job by itself:
//
//   - Each job has its own slot, heartbeats, attempts, retries and dead letter, and its own permits of Policy.Limits, from the
//     moment it waits for its batch. Policy.Timeout begins when the batch starts, and is that of the call.
//   - Middleware and hooks run for each job. Middleware that does not call next takes its job out of the batch; middleware that
//     waits holds up the batch.
//   - Steps and Job.Progress are those of the job that is passed to them. The context has the values of one of the jobs'
//     contexts.
//   - A job that cannot be decoded, that has ended or has no attempts left does not enter a batch. A job that is cancelled
//     leaves the batch while it waits; later its outcome is the batch's.
//   - A worker that stops hands back the waiting jobs at once, and those of a batch that does not end before the soft deadline.
//     Neither uses an attempt.
//
// A job that fails is retried by itself and gets into another batch.
func HandleBatch[T any](w *Worker, pattern string, policy Policy, size BatchPolicy, handler BatchHandler[T]) error {
	policy, size = policy.withDefaults(), size.withDefaults(w.cfg.Concurrency)
	err := errors.Join(policy.validate(), size.validate(w.cfg.Concurrency))
	if handler == nil {
		err = errors.Join(err, errNilHandler)
	}
	all := &batches{
		batcher: batcher.New[*member](size.Size, size.Wait, ErrGoexit),
		decode: func(d *delivery) (job any, err error) {
			defer catchPanic(&err) // in middleware it would be the handler's
			return decodeJob[T](policy, d.info, d.msg)
		},
		handle: func(ctx context.Context, members []*member) error {
			jobs := make([]*Job[T], 0, len(members))
			for _, m := range members {
				jobs = append(jobs, m.job.(*Job[T])) //nolint:forcetypeassert // decode returned it
			}
			return handler(ctx, jobs)
		},
		jobs: func() context.Context { return w.jobs }, timeout: policy.Timeout,
	}
	return w.register(err, &route{
		batches: all, pattern: pattern, policy: policy,
		work: func(ctx context.Context, _ Info, _ *nats.Msg) error { return all.run(ctx) },
	})
}

// HandleBatch registers a handler for many jobs of this type at a time. See the function HandleBatch.
func (t Type[T]) HandleBatch(w *Worker, size BatchPolicy, handler BatchHandler[T]) error {
	if err := t.validate(); err != nil {
		return err
	}
	return HandleBatch(w, t.Pattern(), t.Policy, size, handler)
}

// batches are those of one handler.
type batches struct {
	batcher *batcher.Batcher[*member]
	decode  func(d *delivery) (any, error)
	handle  func(ctx context.Context, members []*member) error
	jobs    func() context.Context // ends at the soft deadline
	timeout time.Duration
}

// member is a job in a batch.
type member struct {
	delivery *delivery
	job      any // *Job[T]
	label    stacks.Label
}

// joinBatch waits for the job's batch to start.
func (w *Worker) joinBatch(ctx context.Context, d *delivery, all *batches) error {
	job, err := all.decode(d)
	if err != nil {
		return err
	}
	w.deliveries.awaitBatch(d, time.Now())
	d.place = all.batcher.Join(&member{delivery: d, job: job, label: stacks.New()}, ctx.Done(), w.stopping.Done())
	if d.place != nil {
		d.label = d.place.First().label // the goroutines of a batch are those of all its jobs
		return nil
	}
	if w.stopping.Err() == nil {
		return context.Cause(ctx)
	}
	<-w.drained // a job that is handed back earlier could come here again
	return errNotStarted
}

// run works the batch of a job, or waits until another member does, and returns the job's outcome.
func (b *batches) run(ctx context.Context) error {
	r, ok := ctx.Value(reporterKey{}).(*reporter)
	if !ok {
		return errNotStarted // middleware did not derive its context from the job's
	}
	d := r.delivery
	err := d.place.Run(func(members []*member) error { return b.work(ctx, r.worker, members) })
	if each, ok := errors.AsType[*BatchError](err); ok {
		return each.errs[d.info.Sequence]
	}
	return err
}

// work calls the handler, on a context that has the values of one job's context and an end of its own.
func (b *batches) work(ctx context.Context, w *Worker, members []*member) (err error) {
	defer catchPanic(&err)
	reporters := make(map[uint64]*reporter, len(members))
	journals := make(map[uint64]*journal.Journal, len(members))
	for _, m := range members {
		reporters[m.delivery.info.Sequence] = &reporter{delivery: m.delivery, worker: w}
		journals[m.delivery.info.Sequence] = m.delivery.journal
	}
	ctx = journal.WithEach(context.WithoutCancel(ctx), journals)
	ctx = context.WithValue(ctx, reporterKey{}, reporters)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := b.jobs()
	defer context.AfterFunc(jobs, func() { cancel(context.Cause(jobs)) })()
	if b.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, b.timeout, &TimeoutError{Timeout: b.timeout})
		defer stop()
	}
	return b.handle(ctx, members)
}

// BatchError gives the jobs of a batch outcomes of their own. The zero value is ready to use, in one goroutine at a time. A job
// without an outcome is completed.
type BatchError struct {
	errs map[uint64]error // by Job.Sequence
	jobs map[uint64]Info
}

// Set sets the outcome of a job: nil completes it, [Retry], [Snooze] and [Cancel] mean the same as for one job, and any other
// error fails its attempt. The latest counts.
func (e *BatchError) Set(job Info, err error) {
	if e.errs == nil {
		e.errs, e.jobs = make(map[uint64]error), make(map[uint64]Info)
	}
	e.errs[job.Sequence], e.jobs[job.Sequence] = err, job
}

// Err is what the handler returns: e, or nil when all jobs are completed.
func (e *BatchError) Err() error {
	for _, err := range e.errs {
		if err != nil {
			return e
		}
	}
	return nil
}

// Error implements error.
func (e *BatchError) Error() string {
	const most = 5
	var texts []string
	for _, sequence := range slices.Sorted(maps.Keys(e.errs)) {
		if err := e.errs[sequence]; err != nil {
			texts = append(texts, fmt.Sprintf("%s: %v", e.jobs[sequence].ID, err))
		}
	}
	failed := len(texts)
	return fmt.Sprintf("worker: %d jobs of the batch: %s", failed, strings.Join(texts[:min(failed, most)], "; "))
}
