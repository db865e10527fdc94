package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/subject"
)

// route ties a pattern to a handler. Past this point nothing is generic.
type route struct {
	batches *batches // nil for a handler of one job at a time
	labels  []string // of CPU profiles
	pattern string
	policy  Policy
	work    func(ctx context.Context, info Info, msg *nats.Msg) error
}

// Handle registers the handler of every job whose subject matches pattern. A pattern is a
// subject that may end in ">" and have "*" tokens, and must lie within the stream's
// subjects. Patterns of one worker must not overlap, since a job has one handler. The
// errors of a bad pattern and a bad policy are reported together. Call it before Run.
func Handle[T any](w *Worker, pattern string, policy Policy, handler Handler[T]) error {
	policy = policy.withDefaults()

	err := policy.validate()
	if handler == nil {
		err = errors.Join(err, errors.New("worker: Handle needs a handler, got nil"))
	}

	if err != nil {
		return fmt.Errorf("worker: handle %q: %w", pattern, err)
	}

	return w.register(&route{
		labels: w.labels(pattern, policy), pattern: pattern, policy: policy,
		work: func(ctx context.Context, info Info, msg *nats.Msg) error {
			job := &Job[T]{Info: info, Data: msg.Data, Header: msg.Header}
			if err := policy.Decode(msg.Header, msg.Data, &job.Args); err != nil {
				return &DecodeError{Cause: err, Subject: info.Subject}
			}

			return handler(ctx, job)
		},
	})
}

// labels are those of the CPU profiles of a handler.
func (w *Worker) labels(pattern string, policy Policy) []string {
	return []string{"worker_consumer", ConsumerOf(w.cfg.Consumer, policy.Priority), "worker_pattern", pattern}
}

func (w *Worker) register(added *route) error {
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

	if err := w.checkSame(added); err != nil {
		return err
	}

	c := w.classFor(added.policy.Priority)
	if len(c.consumer) > maxName {
		return fmt.Errorf("worker: handle %q: the consumer of its priority would be %q: use a shorter Config.Consumer", added.pattern, c.consumer)
	}

	c.patterns = append(c.patterns, added.pattern)
	w.limited = w.limited || len(added.policy.Limits) > 0
	w.routes = append(w.routes, added)

	return nil
}

// routeOf finds the handler of a subject, nil when there is none.
func (w *Worker) routeOf(to string) *route {
	for _, r := range w.routes {
		if subject.Matches(r.pattern, to) {
			return r
		}
	}

	return nil
}

func subjectPrefix(prefix string) error {
	if err := subject.CheckLiteral(prefix); err != nil {
		return fmt.Errorf("not a literal subject: %w", err)
	}

	return nil
}
