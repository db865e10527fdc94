package natsotel

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker"
)

// jobMetrics are the instruments of workers.
type jobMetrics struct {
	attempts            metric.Int64Counter
	age, duration, wait metric.Float64Histogram
	paused, ready       metric.Int64Gauge
	running             metric.Int64UpDownCounter
	stuck               metric.Int64Counter
	waiting             metric.Int64UpDownCounter

	made *cache[kind, labels]
}

func newJobMetrics(m *maker) jobMetrics {
	return jobMetrics{
		attempts: m.counter("worker.job.attempts", "{attempt}", "Attempts at jobs that ended."),
		age:      m.histogram("worker.job.age", "Time from a job being stored to its end."),
		duration: m.histogram("worker.job.duration", "How long handlers ran."),
		wait:     m.histogram("worker.job.wait", "Time from a job being stored to the start of its first attempt."),
		paused:   m.gauge("worker.paused", "Patterns whose jobs do not start."),
		ready:    m.gauge("worker.ready", "1 while jobs can be pulled, else 0."),
		running:  m.upDown("worker.jobs.running", "{job}", "Handlers that run."),
		stuck:    m.counter("worker.jobs.stuck", "{job}", "Handlers that ignored their ended context."),
		waiting:  m.upDown("worker.jobs.waiting", "{job}", "Jobs that wait in a worker for a limit."),
		made:     newCache[kind, labels](),
	}
}

// kind has the labels of a job's metrics. There are few kinds: the number of handlers times that of outcomes.
type kind struct {
	stream, consumer, pattern string
	outcome                   worker.Outcome // "" where there is none
}

// kindOf returns the kind of a job.
func kindOf(info worker.Info) kind {
	return kind{stream: info.Stream, consumer: info.Consumer, pattern: info.Pattern}
}

// labels returns the labels of a kind. They are made once, because sorting and hashing them costs more than counting.
func (m *jobMetrics) labels(k kind) labels {
	if made, ok := m.made.load(k); ok {
		return made
	}
	all := []attribute.KeyValue{
		attribute.String("stream", k.stream), attribute.String("consumer", k.consumer), attribute.String("pattern", k.pattern),
	}
	if k.outcome != "" {
		all = append(all, attribute.String("outcome", string(k.outcome)))
	}
	made := newLabels(all...)
	m.made.store(k, made)
	return made
}

// Hooks returns hooks for the worker of cfg: they count, and then call the hooks that are set in cfg.Hooks.
func (t *Telemetry) Hooks(cfg worker.Config) worker.Hooks {
	ctx := context.Background() //nolint:forbidigo // hooks have no context, and metrics need none
	next := cfg.Hooks
	of := newLabels(attribute.String("stream", cfg.Stream), attribute.String("consumer", cfg.Consumer))
	return worker.Hooks{
		Paused: func(patterns int) {
			t.jobs.paused.Record(ctx, int64(patterns), of.record...)
			if next.Paused != nil {
				next.Paused(patterns)
			}
		},
		Ready: func(ready bool, reason error) {
			var value int64
			if ready {
				value = 1
			}
			t.jobs.ready.Record(ctx, value, of.record...)
			if next.Ready != nil {
				next.Ready(ready, reason)
			}
		},
		Settled: func(s worker.Settlement) {
			t.settled(ctx, s)
			if next.Settled != nil {
				next.Settled(s)
			}
		},
		Started: next.Started,
		Stuck: func(h worker.StuckHandler) {
			t.jobs.stuck.Add(ctx, 1, t.jobs.labels(kindOf(h.Info)).add...)
			if next.Stuck != nil {
				next.Stuck(h)
			}
		},
		Waiting: func(info worker.Info, waits bool) {
			change := int64(-1)
			if waits {
				change = 1
			}
			t.jobs.waiting.Add(ctx, change, t.jobs.labels(kindOf(info)).add...)
			if next.Waiting != nil {
				next.Waiting(info, waits)
			}
		},
	}
}

func (t *Telemetry) settled(ctx context.Context, s worker.Settlement) {
	of := kindOf(s.Info)
	all := t.jobs.labels(of)
	of.outcome = s.Outcome
	ended := t.jobs.labels(of)
	t.jobs.attempts.Add(ctx, 1, ended.add...)
	if s.Ran == 0 {
		return // it never began
	}
	t.jobs.duration.Record(ctx, s.Ran.Seconds(), ended.record...)
	if s.Deliveries == 1 {
		t.jobs.wait.Record(ctx, max(s.Waited, 0).Seconds(), all.record...)
	}
	if s.Outcome == worker.OutcomeCompleted || s.Outcome == worker.OutcomeDead {
		t.jobs.age.Record(ctx, max(s.Waited+s.Ran, 0).Seconds(), ended.record...)
	}
}

// Middleware is a middleware for Config.Middleware of a worker: it makes a span for each attempt, and counts the
// attempt as running in the meantime.
func (t *Telemetry) Middleware(ctx context.Context, info worker.Info, header nats.Header, next func(context.Context) error) error {
	all := t.jobs.labels(kindOf(info))
	t.jobs.running.Add(ctx, 1, all.add...)
	defer t.jobs.running.Add(ctx, -1, all.add...)

	ctx, span := t.tracer.Start(ctx, "process "+info.Pattern, t.about(ctx, info, header)...)
	defer span.End() // records a panic and lets it pass
	err := next(ctx)
	safe := redact.Safe(err) // the handler's own may panic, or wrap itself
	if snooze, ok := errors.AsType[*worker.SnoozeError](safe); ok {
		span.AddEvent("snoozed", trace.WithAttributes(attribute.Float64("delay", snooze.Delay.Seconds())))
	} else if safe != nil {
		span.AddEvent("exception", trace.WithAttributes(
			attribute.String("exception.type", fmt.Sprintf("%T", err)), attribute.String("exception.message", safe.Error())))
		span.SetStatus(codes.Error, safe.Error())
	}
	return err
}

// about returns the options of the span of an attempt.
func (t *Telemetry) about(ctx context.Context, info worker.Info, header nats.Header) []trace.SpanStartOption {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", system),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", info.Stream),
			attribute.String("messaging.destination.template", info.Pattern),
			attribute.String("messaging.consumer.group.name", info.Consumer),
			attribute.String("messaging.message.id", info.ID),
			attribute.Int("worker.job.attempt", info.Attempt),
			attribute.Int("worker.job.deliveries", info.Deliveries),
		),
	}
	if header != nil {
		creator := trace.SpanContextFromContext(t.propagator.Extract(ctx, Carrier(header)))
		if creator.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: creator}))
		}
	}
	return options
}
