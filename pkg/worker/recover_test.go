package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// tally counts texts. The zero value has none.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

// add counts a text, and returns the number of different texts.
func (c *tally) add(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.of == nil {
		c.of = make(map[string]int)
	}

	c.of[text]++
	return len(c.of)
}

func (c *tally) count(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[text]
}

// once wants n texts, each once.
func (c *tally) once(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()

	check.Equal(t, len(c.of), n, "jobs with an effect")

	for text, times := range c.of {
		check.Equal(t, times, 1, fmt.Sprintf("job %s had effects", text))
	}
}

// events counts log records by their message.
type events struct{ tally }

func (e *events) logger() *slog.Logger { return slog.New(&eventHandler{e}) }

type eventHandler struct{ *events }

func (h *eventHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *eventHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *eventHandler) WithGroup(string) slog.Handler            { return h }

func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	h.add(r.Message)
	return nil
}

func TestServerRestartsLoseNoJob(t *testing.T) {
	t.Parallel()

	const (
		n        = 1000
		restarts = 3
	)

	b := setup(t, nil)
	b.publishN(t, n)

	var (
		effects tally
		log     events
	)

	milestones := make(chan int, n)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.Logger = 20, log.logger() })
	run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(_ context.Context, job *worker.Job[order]) error {
		milestones <- effects.add(job.ID)
		return nil
	})

	for i := range restarts {
		for ran := 0; ran < (i+1)*n/(restarts+1); {
			ran = receive(t, milestones, "jobs to run")
		}

		b.restart(t)
	}

	for completed := 0; completed < n; {
		if s := receive(t, b.settled, "all jobs"); s.Outcome == worker.OutcomeCompleted {
			completed++
		}
	}

	// A job may run twice when the answer to its acknowledgement was lost and another
	// delivery followed; the worker repeats the acknowledgement, so here none does.
	effects.once(t, n)

	// The last acknowledgement before a restart may have to be repeated after it.
	check.Until(t, patience(), "the jobs to be removed", func() bool { return b.left(t) == 0 })

	if lost, ready := log.count(worker.EventLost), log.count(worker.EventReady); lost < restarts || lost > 2*restarts || ready != lost+1 {
		t.Errorf("logged %d times lost, %d times ready; want about %d, one more", lost, ready, restarts)
	}
}

// TestDeletedConsumerIsMadeAgain holds the server's notice against the slow way to find out, a request that stays unanswered for three
// seconds.
func TestDeletedConsumerIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		jobs := make(chan int, 1)
		run(t, b.js, b.config(t), worker.Policy{}, tell(jobs, itsNumber))
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

			// The next consumer would be given a job that is not acknowledged yet once more.
			check.Equal(t, (<-b.settled).Outcome, worker.OutcomeCompleted, "the job ended as")
		}
	})
}

// A server shows a consumer that it makes a moment before it takes requests for it. Then the worker asks again and tells nobody; a
// second refusal is told.
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
		run(t, js, b.config(t, func(c *worker.Config) { c.Logger = log.logger() }), worker.Policy{}, tell(jobs, itsNumber))
		b.publish(t, "jobs.1", `{"n":7}`)
		check.Equal(t, receive(t, jobs, "the job"), 7, "job")
		check.Equal(t, log.count(worker.EventLost), losses, "told as lost")
	}
}

func TestAFirstProgramNeedsNothingButAutoCreate(t *testing.T) {
	t.Parallel()

	b := setupWith(t, nil, jetstream.StreamConfig{Name: "UNUSED", Subjects: []string{"unused"}})
	jobs := make(chan int, 1)
	run(t, b.js, b.config(t), worker.Policy{}, tell(jobs, itsNumber))
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
	run(t, b.js, b.config(t), worker.Policy{}, tell(done, itsSubject))
	b.publish(t, "jobs.1", `{}`)
	receive(t, done, "the job")
}

// deaf is a JetStream context whose dead letters are published, but whose answers get lost.
type deaf struct {
	jetstream.JetStream

	left atomic.Int32
}

func (d *deaf) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := d.JetStream.PublishMsg(ctx, msg, opts...)
	if d.left.Add(-1) >= 0 {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

func TestLostAnswerMakesOneDeadLetter(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	js := &deaf{JetStream: b.js}
	js.left.Store(3)

	b.publish(t, "jobs.1", `{}`)
	run(t, js, b.config(t), worker.Policy{}, func(context.Context, *worker.Job[order]) error { return worker.Discard(io.EOF) })

	check.Equal(t, receive(t, b.settled, "the settlement").Outcome, worker.OutcomeDead, "outcome")

	if letters := b.letters(t); len(letters) != 1 || b.left(t) != 0 {
		t.Errorf("%d letters, %d left; want 1, 0", len(letters), b.left(t))
	}
}

// TestRestartedServerIsNotWaitedFor restarts the server, which answers a worker's request
// with a notice first and no look-up that follows. A worker that waits for the look-up
// loses five seconds at every restart. The measure is the server's clock: a marker that was
// delivered before is delivered again after four. Only a busy machine lets the marker win
// against a worker that does not wait, and not each time. (Not in a bubble: reconnecting
// uses a timer of the process.)
func TestRestartedServerIsNotWaitedFor(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	marks := check.Must(b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MARKS", Subjects: []string{"mark"}}))(t)

	jobs := make(chan string, 100)
	run(t, b.js, b.config(t), worker.Policy{}, tell(jobs, itsSubject))
	receive(t, b.ready, "the worker")

	const rounds = 10
	for round := range rounds {
		marker, err := marks.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			AckWait: 4 * time.Second, DeliverPolicy: jetstream.DeliverNewPolicy, Durable: fmt.Sprint(round),
		})
		check.OK(t, err)

		b.publish(t, "mark", "")

		check.OK(t, check.Err(marker.Next()))

		b.restart(t)

		b.publish(t, "jobs.1", `{}`)

		if jobIsFirst(t, marker, jobs) {
			return
		}
	}

	t.Errorf("the marker came before the job after each of %d restarts", rounds)
}

// jobIsFirst waits for the job, and reports whether it came before the marker.
func jobIsFirst(t *testing.T, marker jetstream.Consumer, jobs <-chan string) bool {
	t.Helper()

	marks := make(chan struct{}, 100)
	marking := check.Must(marker.Consume(func(jetstream.Msg) { marks <- struct{}{} }))(t)

	receive(t, jobs, "the job")

	first := len(marks) == 0

	marking.Stop()
	<-marking.Closed()
	return first
}
