package natsotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

var (
	mail = worker.Info{
		Attempt: 2, Consumer: "mailer", Deliveries: 1, ID: "j1", Pattern: "jobs.mail.>", Stream: "JOBS", Subject: "jobs.mail.17",
	}
	kind = []attribute.KeyValue{
		attribute.String("stream", "JOBS"), attribute.String("consumer", "mailer"), attribute.String("pattern", "jobs.mail.>"),
	}
)

// published is a header with the trace context of a span, and that span's.
func published(t *testing.T, b *bundle) (nats.Header, trace.SpanContext) {
	t.Helper()
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "publish")
	defer span.End()
	header := nats.Header{}
	b.Inject(ctx, header)
	return header, span.SpanContext()
}

// An attempt is its own span that links to the span of the job's publisher; the handler's spans are below it.
func TestSpanLinksToPublisher(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	header, creator := published(t, b)
	err := b.Middleware(t.Context(), mail, header, func(ctx context.Context) error {
		check.Equal(t, b.value(t, "worker.jobs.running", kind...), 1, "jobs run")
		_, child := b.provider.Tracer("test").Start(ctx, "work")
		child.End()
		return nil
	})
	check.OK(t, err)
	spans := b.spans.Ended() // publish, work, process
	job := spans[2]
	check.That(t, job.Name() == "process jobs.mail.>" && job.SpanKind() == trace.SpanKindConsumer && job.Status().Code == codes.Unset,
		"got %q %s %v", job.Name(), job.SpanKind(), job.Status())
	check.That(t, job.SpanContext().TraceID() != creator.TraceID(), "the job is in the trace of its publisher, and must not be")
	links := job.Links()
	check.That(t, len(links) == 1 && links[0].SpanContext.SpanID() == creator.SpanID(), "links are %v, want one to the publisher", links)
	check.That(t, spans[1].Parent().SpanID() == job.SpanContext().SpanID(), "the handler's span is not below the job's")
	check.Equal(t, b.value(t, "worker.jobs.running", kind...), 0, "jobs run")
}

// Failures show in the span's status, a snooze is none, and a panic is recorded and passes.
func TestSpanStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		work  func() error
		want  codes.Code
		event string
	}{
		{"failure", func() error { return errors.New("no") }, codes.Error, "exception"},
		{"discarded", func() error { return worker.Discard(nil) }, codes.Error, "exception"},
		{"nil", func() error { return (*worker.SnoozeError)(nil) }, codes.Error, "exception"},
		{"snoozed", func() error { return worker.Snooze(time.Second) }, codes.Unset, "snoozed"},
		{"panic", func() error { panic("no") }, codes.Unset, "exception"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			func() {
				defer func() {
					value := recover()
					check.That(t, (value != nil) == (c.name == "panic"), "recovered %v", value)
				}()
				err := b.Middleware(t.Context(), mail, nil, func(context.Context) error { return c.work() })
				check.That(t, err != nil, "the handler's error was lost")
			}()
			span := b.spans.Ended()[0]
			check.That(t, span.Status().Code == c.want && len(span.Events()) == 1 && span.Events()[0].Name == c.event,
				"status %v, events %v", span.Status(), span.Events())
			check.Equal(t, b.value(t, "worker.jobs.running", kind...), 0, "jobs run after the end")
		})
	}
}

// Each attempt counts once, by outcome; only one that ran has a duration; the application's own hooks are called, too.
func TestHooks(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var settled, stuck, waited int
	var ready bool
	hooks := b.Hooks(worker.Config{Stream: mail.Stream, Consumer: mail.Consumer, Hooks: worker.Hooks{
		Ready: func(r bool, _ error) { ready = r }, Settled: func(worker.Settlement) { settled++ }, Stuck: func(worker.StuckHandler) { stuck++ },
		Waiting: func(worker.Info, bool) { waited++ },
	}})
	other := b.Hooks(worker.Config{Stream: mail.Stream, Consumer: "other"}) // without its own hooks
	hooks.Ready(true, nil)
	hooks.Paused(2)
	other.Ready(false, nil)
	hooks.Waiting(mail, true)
	hooks.Waiting(mail, true)
	hooks.Waiting(mail, false)
	hooks.Stuck(worker.StuckHandler{Info: mail})
	for _, s := range []worker.Settlement{
		{Outcome: worker.OutcomeRetried, Ran: time.Second, Waited: time.Second},
		{Outcome: worker.OutcomeCompleted, Ran: time.Second, Waited: -time.Millisecond},
		{Outcome: worker.OutcomeHandedBack}, // never began
	} {
		s.Info = mail
		hooks.Settled(s)
	}
	with := func(outcome worker.Outcome) []attribute.KeyValue {
		return append(kind[:3:3], attribute.String("outcome", string(outcome)))
	}
	for _, c := range []struct {
		name   string
		labels []attribute.KeyValue
		want   int64
	}{
		{"worker.job.attempts", with(worker.OutcomeRetried), 1},
		{"worker.job.attempts", with(worker.OutcomeCompleted), 1},
		{"worker.job.attempts", with(worker.OutcomeHandedBack), 1},
		{"worker.job.duration", with(worker.OutcomeRetried), 1},
		{"worker.job.duration", with(worker.OutcomeHandedBack), 0},
		{"worker.job.wait", kind, 2},
		{"worker.job.age", with(worker.OutcomeCompleted), 1},
		{"worker.job.age", with(worker.OutcomeRetried), 0},
		{"worker.jobs.stuck", kind, 1},
		{"worker.jobs.waiting", kind, 1},
		{"worker.ready", kind[:2], 1},
		{"worker.paused", kind[:2], 2},
	} {
		got := b.value(t, c.name, c.labels...)
		check.That(t, got == c.want, "%s %v is %d, want %d", c.name, c.labels, got, c.want)
	}
	check.That(t, settled == 3 && stuck == 1 && waited == 3 && ready,
		"the application's hooks were called %d, %d and %d times, ready %t", settled, stuck, waited, ready)
	hooks.Ready(false, errors.New("down"))
	check.Equal(t, b.value(t, "worker.ready", kind[:2]...), 0, "ready")
	other.Settled(worker.Settlement{Info: mail})
}

// Events of keys are counted by kind, timed where they took time, and added to the caller's span.
func TestObserve(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	observe := b.Observe("menus")
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "caller")
	observe(ctx, flight.Event{Kind: flight.EventWaiting, Key: "k", Claim: "c1"})
	observe(ctx, flight.Event{Kind: flight.EventCoalesced, Key: "k", Claim: "c1", Elapsed: time.Second})
	observe(ctx, flight.Event{Kind: flight.EventReleased, Key: "k", Elapsed: time.Second})
	observe(ctx, flight.Event{Kind: flight.EventLost, Key: "k", Err: errors.New("gone")})
	span.End()
	observe(t.Context(), flight.Event{Kind: flight.EventWaiting, Key: "other"}) // outside of any span

	in := attribute.String("bucket", "menus")
	of := func(kind flight.EventKind) attribute.KeyValue { return attribute.String("kind", string(kind)) }
	check.Equal(t, b.value(t, "kvlock.events", in, of(flight.EventWaiting)), 2, "waits")
	check.Equal(t, b.value(t, "kvlock.wait.duration", in, of(flight.EventCoalesced)), 1, "waits were timed")
	check.Equal(t, b.value(t, "kvlock.hold.duration", in), 1, "claims were timed")
	ended := b.spans.Ended()[0]
	check.That(t, len(ended.Events()) == 4 && ended.Events()[1].Name == "kvlock coalesced" && ended.Status().Code == codes.Error,
		"events %v, status %v", ended.Events(), ended.Status())
}
