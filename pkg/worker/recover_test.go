package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// counter counts texts. The zero value has none.
type counter struct {
	mu sync.Mutex
	of map[string]int
}

// add counts a text, and returns the number of different texts.
func (c *counter) add(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.of == nil {
		c.of = make(map[string]int)
	}

	c.of[text]++
	return len(c.of)
}

func (c *counter) count(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[text]
}

// once wants n texts, each once.
func (c *counter) once(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()

	check.Equal(t, len(c.of), n, "jobs with an effect")

	for text, times := range c.of {
		check.Equal(t, times, 1, fmt.Sprintf("job %s had effects", text))
	}
}

// events counts log records by their message, and by their message and error.
type events struct{ counter }

// hasError reports whether there was an event with texts in its error.
func (e *events) hasError(event string, texts ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for record := range e.of {
		found, ok := strings.CutPrefix(record, event+": ")
		if ok && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(found, text) }) {
			return true
		}
	}
	return false
}

func (e *events) logger() *slog.Logger { return slog.New(&eventHandler{e}) }

type eventHandler struct{ *events }

func (h *eventHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *eventHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *eventHandler) WithGroup(string) slog.Handler            { return h }

func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	h.add(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			h.add(r.Message + ": " + a.Value.String())
		}
		return true
	})
	return nil
}

// TestDeletedConsumerIsRecreated holds the server's notice against the slow way to find out, a request that stays unanswered for three
// seconds.
func TestDeletedConsumerIsRecreated(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		jobs := make(chan int, 1)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(jobs, numberOf))
		check.That(t, <-b.ready, "not ready at first")

		for n := range 3 {
			natstest.Pass(500 * time.Millisecond) // the request is at the server
			check.OK(t, b.js.DeleteConsumer(t.Context(), stream, durable))

			deleted := time.Now()
			b.publish(t, "jobs.1", fmt.Sprintf(`{"n":%d}`, n))
			check.That(t, !<-b.ready, "the loss was not reported")
			check.Equal(t, <-jobs, n, "job")
			within(t, "the next job", time.Since(deleted), 0, time.Second)
			check.That(t, <-b.ready, "recovery was not reported")

			// The next consumer would get a job again that is not acknowledged yet.
			check.Equal(t, (<-b.settled).Outcome, worker.OutcomeCompleted, "the job ended as")
		}
	})
}

// A server shows a consumer that it makes a moment before it takes requests for it. Then the worker asks again without a report; it
// reports a second refusal.
func TestConsumerIsNotServedYet(t *testing.T) {
	t.Parallel()
	for refusals, losses := range []int{0, 0, 1} {
		b := setup(t, nil)
		p := natstest.NewProxy(t, b.srv)
		requests := 0
		p.Change(func(f natstest.Frame) []byte {
			if !f.FromClient || !strings.HasPrefix(f.Subject, "$JS.API.CONSUMER.MSG.NEXT.") {
				return nil
			}
			requests++
			if requests > refusals {
				return nil
			}
			return bytes.Replace(f.Raw, []byte("$JS.API"), []byte("nobody."), 1)
		})
		_, js := natstest.Connect(t, b.srv, p.Through())
		var log events
		jobs := make(chan int, 1)
		run(t, js, b.config(t, func(c *worker.Config) { c.Logger = log.logger() }), worker.Policy{}, sendEach(jobs, numberOf))
		b.publish(t, "jobs.1", `{"n":7}`)
		check.Equal(t, receive(t, jobs, "the job"), 7, "job")
		check.Equal(t, log.count(worker.EventLost), losses, "events of a loss")
	}
}

func TestAFirstProgramNeedsNothingButAutoCreate(t *testing.T) {
	t.Parallel()

	b := setupWith(t, nil, jetstream.StreamConfig{Name: "UNUSED", Subjects: []string{"unused"}})
	jobs := make(chan int, 1)
	run(t, b.js, b.config(t), worker.Policy{}, sendEach(jobs, numberOf))
	receive(t, b.ready, "the worker")

	insert(t, client(t, b.js), worker.NewJob{Args: order{N: 7}, Delay: time.Millisecond, Subject: "jobs.a", Unique: &worker.Unique{Keep: time.Hour}})
	check.Equal(t, receive(t, jobs, "the job"), 7, "job")

	check.OK(t, worker.CreateStream(t.Context(), b.js, stream, "jobs.other.>")) // it stays as it is
	check.OK(t, worker.CreateBucket(t.Context(), b.js, "jobs"))
	check.Equal(t, worker.StreamConfig(stream, "jobs.>").Subjects,
		check.Must(b.js.Stream(t.Context(), stream))(t).CachedInfo().Config.Subjects)
}

func TestRunNamesWhatIsMissingAndWhatDiffers(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	try := func(mutate ...func(*worker.Config)) error {
		cfg := b.config(t, append([]func(*worker.Config){func(c *worker.Config) { c.AutoCreate = false }}, mutate...)...)
		return run(t, b.js, cfg, worker.Policy{}, complete).refuses()
	}

	err := try()
	check.ErrorContains(t, err, "consumer JOBS/cook", "bucket jobs", "dead.JOBS.>")

	_, ok := errors.AsType[*worker.MissingError](err)
	check.That(t, ok, "%T is no MissingError", err)

	err = try(func(c *worker.Config) { c.Stream = "OTHER" })
	check.ErrorContains(t, err, "stream OTHER is missing", "create it with worker.CreateStream, or set Config.AutoCreate",
		"create it with worker.CreateBucket")

	foreign := jetstream.ConsumerConfig{
		AckWait: 30 * time.Second, BackOff: []time.Duration{time.Second}, Durable: durable, FilterSubject: "jobs.x", HeadersOnly: true, MaxDeliver: 5,
	}
	check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, foreign)))

	err = try()

	_, ok = errors.AsType[*worker.DriftError](err)
	check.Require(t, ok, "%v is no DriftError", err)

	check.ErrorContains(t, err, "ack_wait", "backoff", "filter_subjects", "delete and create it", "headers_only", "max_ack_pending",
		"max_deliver")

	// With AutoCreate the same consumer is put right, unless the server cannot change it.
	push := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: "x", Durable: "push", FilterSubject: "push"}
	check.OK(t, check.Err(b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PUSH", Subjects: []string{"push"}})))
	check.OK(t, check.Err(b.js.CreatePushConsumer(t.Context(), "PUSH", push)))
	push.AckPolicy, push.DeliverSubject, push.Durable = jetstream.AckNonePolicy, "", "none"
	check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), "PUSH", push)))
	for durable, want := range map[string]string{"push": "deliver_subject", "none": "ack_policy"} {
		w := check.Must(worker.New(b.js, b.config(t, func(c *worker.Config) { c.Consumer, c.Stream = durable, "PUSH" })))(t)
		check.OK(t, worker.Handle(w, "push", worker.Policy{}, complete))
		check.ErrorContains(t, start(t, w).refuses(), want)
	}
	done := make(chan string, 1)
	run(t, b.js, b.config(t), worker.Policy{}, sendEach(done, subjectOf))
	b.publish(t, "jobs.1", `{}`)
	receive(t, done, "the job")
}
