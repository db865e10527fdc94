package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// Handler works one job. A result of nil completes the job; [Retry], [Snooze] and [Discard] return the errors that decide otherwise. Any
// other error, a panic or a runtime.Goexit is a failed attempt, which the policy retries. The context ends at the policy's timeout and
// when the worker stops; [context.Cause] returns the reason.
//
// A job is delivered at least once, so a handler must be idempotent: it runs again after a crash between its last effect and
// the acknowledgement. Its goroutine works other jobs later: a handler that calls runtime.LockOSThread has to unlock the thread again.
type Handler[T any] func(ctx context.Context, job *Job[T]) error

// Handle registers the handler of every job whose subject matches pattern. A pattern is a subject that may end in ">" and have
// "*" tokens. Patterns of one worker must not overlap, since a job has one handler. The errors of a bad pattern and a bad policy are
// reported together. Run refuses a pattern that no job of the stream can match, or that matches its schedules or records too. Call Handle
// before Run.
func Handle[T any](w *Worker, pattern string, policy Policy, handler Handler[T]) error {
	policy = policy.withDefaults()
	err := policy.validate()
	if handler == nil {
		err = errors.Join(err, errors.New("worker: registering needs a handler, got nil"))
	}
	return w.register(err, &route{
		pattern: pattern, policy: policy,
		work: func(ctx context.Context, info Info, msg *nats.Msg) error {
			job := &Job[T]{Info: info, Data: msg.Data, Header: msg.Header}
			if err := policy.Decode(msg.Header, msg.Data, &job.Args); err != nil {
				return &DecodeError{Cause: redact.Safe(err), Subject: info.Subject, sequence: info.Sequence}
			}
			return handler(ctx, job)
		},
	})
}

// Middleware runs around every attempt of every job, on the goroutine of its handler: for tracing, for values in the context,
// for checks that all handlers share. It has to call next once at most, and to return the error of next, or another error instead. If it
// does not call next, it decides the attempt without the handler. The context that it passes to next must be derived from ctx. A panic of
// the handler passes through it.
//
// header holds the headers of the message, nil when it has none, and must not be changed.
type Middleware func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error

// route ties a pattern to a handler. Past this point nothing is generic.
type route struct {
	labels  []string // of CPU profiles
	pattern string
	policy  Policy
	work    func(ctx context.Context, info Info, msg *nats.Msg) error
}

// register adds a route, unless err is the error of an invalid handler.
func (w *Worker) register(err error, added *route) error {
	if err != nil {
		return fmt.Errorf("worker: handle %s: %w", redact.Quote(added.pattern), err)
	}
	if w.started.Load() {
		return fmt.Errorf("%w: handle %q before Run", ErrStarted, added.pattern)
	}
	if err := subject.CheckPattern(added.pattern); err != nil {
		return fmt.Errorf("worker: handle %s: not a subject filter: %w", redact.Quote(added.pattern), err)
	}
	for _, other := range w.routes {
		if !subject.Overlap(other.pattern, added.pattern) {
			continue
		}
		err := fmt.Errorf("worker: handle %q: overlaps %q, so a job could have two handlers", added.pattern, other.pattern)
		if other.policy.Priority != added.policy.Priority {
			err = fmt.Errorf("%w, and two priorities: publish the jobs of each priority under their own subject, "+
				"such as jobs.urgent.> and jobs.bulk.>", err)
		}
		return err
	}
	if err := w.checkSameLimits(added); err != nil {
		return err
	}
	c := w.classFor(added.policy.Priority)
	if len(c.consumer) > maxName {
		return fmt.Errorf("worker: handle %q: the consumer of its priority would be %q: use a shorter Config.Consumer",
			added.pattern, c.consumer)
	}
	c.patterns = append(c.patterns, added.pattern)
	added.labels = []string{"worker_consumer", ConsumerOf(w.cfg.Consumer, added.policy.Priority), "worker_pattern", added.pattern}
	w.limited = w.limited || len(added.policy.Limits) > 0
	w.ordered = w.ordered || added.policy.Ordered
	w.routes = append(w.routes, added)
	w.routing.Add(added.pattern, added)
	return nil
}

// class holds the handlers of one priority, and the consumer that they share.
type class struct {
	consumer string
	created  atomic.Int64 // the time at which the consumer was made, in Unix nanoseconds
	patterns []string
	priority Priority
}

// classFor returns the class of a priority, and makes it if there is none. Worker.classes has the highest priority first.
func (w *Worker) classFor(p Priority) *class {
	at, found := slices.BinarySearchFunc(w.classes, p, func(c *class, p Priority) int { return int(p - c.priority) })
	if !found {
		w.classes = slices.Insert(w.classes, at, &class{consumer: ConsumerOf(w.cfg.Consumer, p), priority: p})
	}
	return w.classes[at]
}

// classOf returns the class of the consumer that delivered a job.
func (w *Worker) classOf(consumer string) *class {
	for _, c := range w.classes {
		if c.consumer == consumer {
			return c
		}
	}
	return w.classes[0]
}

// sources returns the consumers from which the worker pulls.
func (w *Worker) sources() []pull.Source {
	all := make([]pull.Source, 0, len(w.classes))
	for _, c := range w.classes {
		all = append(all, pull.Source{
			Paused:  func() bool { return c.created.Load() == 0 || w.isPaused(c) },
			Subject: w.api.Prefix + "CONSUMER.MSG.NEXT." + w.cfg.Stream + "." + c.consumer, Weight: c.priority.weight(),
		})
	}
	return all
}

// HeaderID is the header with the ID of a job. Without it the Nats-Msg-Id is the ID. A Nats-Msg-Id must differ between two publications of
// one job, and a schedule drops it when it fires.
const HeaderID = jobmsg.HeaderID

// Job is one job as its handler sees it. Handlers must not change Data or Header.
type Job[T any] struct {
	Info

	// Args is the decoded payload.
	Args T

	// Data is the published payload.
	Data []byte

	// Header holds the headers of the message, nil when it has none.
	Header nats.Header
}

// Info identifies one attempt at one job.
type Info struct {
	// Attempt is 1 for the first attempt. README.md has a table of the events that use one.
	Attempt int

	// Consumer is the durable name of the consumer that delivered the job.
	Consumer string

	// Deliveries is the number of deliveries of the message, this one included. It is at least Attempt; uncounted deliveries make the
	// difference.
	Deliveries int

	// EnqueuedAt is the time at which the stream stored the message, by the server's clock.
	EnqueuedAt time.Time

	// ID is the header Job-Id of the message, else its Nats-Msg-Id, else "<stream>:<sequence>". It is the same in every attempt
	// and after a replay.
	ID string

	// MaxAttempts is the MaxAttempts of the policy: at Attempt == MaxAttempts an error is final.
	MaxAttempts int

	// Pattern is the pattern of the job's handler: a label for metrics, where subjects would be too many. Empty when the job has no handler
	// in this worker.
	Pattern string

	// Sequence is the position in the stream.
	Sequence uint64

	// Stream is the name of the stream.
	Stream string

	// Subject is the subject to which the job was published.
	Subject string
}
