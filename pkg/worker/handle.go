package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// Handler works one job. Returning nil completes the job; [Retry], [Snooze] and [Cancel] return the errors that decide
// otherwise. Any other error, a panic or a runtime.Goexit is a failed attempt, which the policy retries. The context ends at
// the policy's timeout and when the worker stops; [context.Cause] returns the reason.
//
// A job is delivered at least once, so a handler must be idempotent: it runs again after a crash between its last effect and
// the acknowledgement. Its goroutine works other jobs after it: a handler that calls runtime.LockOSThread unlocks the thread again.
type Handler[T any] func(ctx context.Context, job *Job[T]) error

// Handle registers the handler of every job whose subject matches pattern. A pattern is a subject that may end in ">" and have
// "*" tokens, and must lie within the stream's subjects. Patterns of one worker must not overlap, since a job has one handler.
// The errors of a bad pattern and a bad policy are reported together. Call it before Run.
func Handle[T any](w *Worker, pattern string, policy Policy, handler Handler[T]) error {
	policy = policy.withDefaults()
	err := policy.validate()
	if handler == nil {
		err = errors.Join(err, errNilHandler)
	}
	return w.register(err, &route{
		pattern: pattern, policy: policy,
		work: func(ctx context.Context, info Info, msg *nats.Msg) error {
			job, err := decodeJob[T](policy, info, msg)
			if err != nil {
				return err
			}
			return handler(ctx, job)
		},
	})
}

var errNilHandler = errors.New("worker: registering needs a handler, got nil")

func decodeJob[T any](policy Policy, info Info, msg *nats.Msg) (*Job[T], error) {
	job := &Job[T]{Info: info, Data: msg.Data, Header: msg.Header}
	if err := policy.Decode(msg.Header, msg.Data, &job.Args); err != nil {
		return nil, &DecodeError{Cause: err, Subject: info.Subject}
	}
	return job, nil
}

// Middleware runs around every attempt of every job, on the goroutine of its handler: for tracing, for values in the context,
// for checks that all handlers share. It has to call next once at most and to return the error that next returned, or an error
// of its own in its place; one that does not call next decides the attempt without the handler. The context that it passes to
// next must be derived from ctx. A panic of the handler passes through it.
//
// header holds the headers of the message, nil when it has none, and must not be changed.
type Middleware func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error

// wrap puts the middleware around work, the first one outermost.
func wrap(all []Middleware, info Info, header nats.Header, work func(context.Context) error) func(context.Context) error {
	for _, outer := range slices.Backward(all) {
		next := work
		work = func(ctx context.Context) error { return outer(ctx, info, header, next) }
	}
	return work
}

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
		return fmt.Errorf("worker: handle %q: %w", added.pattern, err)
	}
	if w.started.Load() {
		return fmt.Errorf("%w: handle %q before Run", ErrStarted, added.pattern)
	}
	if err := subject.CheckPattern(added.pattern); err != nil {
		return fmt.Errorf("worker: handle %q: not a subject filter: %w", added.pattern, err)
	}
	for _, other := range w.routes {
		if !subject.Overlap(other.pattern, added.pattern) {
			continue
		}
		err := fmt.Errorf("worker: handle %q: overlaps %q, so a job could have two handlers", added.pattern, other.pattern)
		if other.policy.Priority != added.policy.Priority {
			err = fmt.Errorf("%w, and two priorities: publish the jobs of each priority under a subject of their own, "+
				"such as jobs.urgent.> and jobs.bulk.>", err)
		}
		return err
	}
	if err := w.checkSameLimits(added); err != nil {
		return err
	}
	for _, c := range w.classesFor(added.policy.Priority) {
		if len(c.consumer) > maxName {
			return fmt.Errorf("worker: handle %q: the consumer of its priority would be %q: use a shorter Config.Consumer",
				added.pattern, c.consumer)
		}
		c.patterns = append(c.patterns, added.pattern)
	}
	added.labels = []string{"worker_consumer", ConsumerOf(w.cfg.Consumer, added.policy.Priority), "worker_pattern", added.pattern}
	w.limited = w.limited || len(added.policy.Limits) > 0
	w.ordered = w.ordered || added.policy.Ordered
	w.routes = append(w.routes, added)
	w.routing.Add(added.pattern, added)
	return nil
}

// routeOf returns the route of a subject, nil when there is none.
func (w *Worker) routeOf(to string) *route {
	r, _ := w.routing.Find(to)
	return r
}

// class holds the handlers of one priority, and the consumer that they share, of one partition.
type class struct {
	consumer  string
	created   atomic.Int64 // when the consumer was made, in Unix nanoseconds
	entry     string       // of records, "" for the first partition
	partition int
	patterns  []string
	priority  Priority
	stream    string
}

// classesFor returns the classes of a priority, made when it is new. The highest come first.
func (w *Worker) classesFor(p Priority) []*class {
	at, found := slices.BinarySearchFunc(w.classes, p, func(c *class, p Priority) int { return int(p - c.priority) })
	for i := 0; !found && i < w.cfg.Partitions; i++ {
		c := &class{
			consumer: PartitionConsumer(ConsumerOf(w.cfg.Consumer, p), i), partition: i, priority: p, stream: PartitionStream(w.cfg.Stream, i),
		}
		if i > 0 {
			c.entry = entryOf(w.cfg.Stream, i)
		}
		w.classes = slices.Insert(w.classes, at+i, c)
	}
	return w.classes[at : at+w.cfg.Partitions]
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

// sources are the consumers to pull from.
func (w *Worker) sources() []pull.Source {
	all := make([]pull.Source, 0, len(w.classes))
	for _, c := range w.classes {
		all = append(all, pull.Source{
			Paused:  func() bool { return c.created.Load() == 0 || w.isPaused(c) },
			Subject: w.api.Prefix + "CONSUMER.MSG.NEXT." + c.stream + "." + c.consumer, Weight: c.priority.weight(),
		})
	}
	return all
}

// HeaderID is the header that names a job. Without it the Nats-Msg-Id names it, which must differ between two publications of
// one job, and which a schedule drops when it fires.
const HeaderID = "Job-Id"

// Job is one job as its handler sees it. Handlers must not change Data or Header.
type Job[T any] struct {
	Info

	// Args is the decoded payload.
	Args T

	// Data is the payload as it was published.
	Data []byte

	// Header holds the headers of the message, nil when it has none.
	Header nats.Header
}

// Info identifies one attempt at one job.
type Info struct {
	// Attempt is 1 for the first attempt. README.md has a table of what uses one.
	Attempt int

	// Consumer is the durable name of the consumer that delivered the job.
	Consumer string

	// Deliveries is how often the server has delivered the message, this time included. It is at least Attempt; uncounted
	// deliveries make the difference.
	Deliveries int

	// EnqueuedAt is when the stream stored the message, by the server's clock.
	EnqueuedAt time.Time

	// ID is the header Job-Id of the message, else its Nats-Msg-Id, else "<stream>:<sequence>". It is the same in every attempt
	// and after a replay.
	ID string

	// MaxAttempts is the policy's: at Attempt == MaxAttempts an error is final.
	MaxAttempts int

	// Pattern is the pattern that the job's handler was registered for: a label for metrics, where subjects would be too
	// many. Empty when the job has no handler in this worker.
	Pattern string

	// Sequence is the position in the stream.
	Sequence uint64

	// Stream is the name of the stream.
	Stream string

	// Subject is the subject that the job was published to.
	Subject string
}

func jobID(header nats.Header, stream string, sequence uint64) string {
	for _, name := range []string{HeaderID, nats.MsgIdHdr} {
		if id := header.Get(name); id != "" {
			return id
		}
	}
	return stream + ":" + strconv.FormatUint(sequence, 10)
}
