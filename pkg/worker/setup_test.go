package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Names that every test uses on its own server.
const (
	durable = "cook"
	pattern = "jobs.>"
	stream  = "JOBS"
)

// order is the payload of the tests' jobs.
type order struct {
	N int `json:"n"`
}

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// bundle is the environment of a test.
type bundle struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	paused  *atomic.Int64 // patterns
	ready   chan bool     // of the workers that have no such hook, as settled
	settled chan worker.Settlement
	srv     *natsrun.Server
}

// bubble runs a test in fake time, with a server that has a job stream.
func bubble(t *testing.T, test func(t *testing.T, b *bundle), options ...func(*natsrun.Config)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { test(t, setup(t, srv)) }, options...)
}

// keyedBubble is bubble, with a stream whose jobs may have unique keys.
func keyedBubble(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { test(t, keyed(t, srv)) })
}

// runBubble is bubble in a subtest.
func runBubble(t *testing.T, name string, test func(t *testing.T, b *bundle)) {
	t.Helper()
	natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) { test(t, setup(t, srv)) })
}

// runKeyedBubble is keyedBubble in a subtest.
func runKeyedBubble(t *testing.T, name string, test func(t *testing.T, b *bundle)) {
	t.Helper()
	natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) { test(t, keyed(t, srv)) })
}

// setup gives a test a server with a job stream. In a bubble the server is given.
func setup(t testing.TB, srv *natsrun.Server) *bundle {
	t.Helper()
	return setupWith(t, srv, jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}, Retention: jetstream.WorkQueuePolicy})
}

// keyed is setup with a stream whose jobs may have unique keys.
func keyed(t testing.TB, srv *natsrun.Server) *bundle {
	t.Helper()
	return setupWith(t, srv, worker.StreamConfig(stream, pattern))
}

func setupWith(t testing.TB, srv *natsrun.Server, cfg jetstream.StreamConfig) *bundle {
	t.Helper()
	if srv == nil {
		srv = natstest.Server(t)
	}
	b := &bundle{paused: new(atomic.Int64), ready: make(chan bool, 10_000), settled: make(chan worker.Settlement, 10_000), srv: srv}
	b.nc, b.js = natstest.Connect(t, srv)
	check.OK(t, check.Err(b.js.CreateStream(t.Context(), cfg)))
	return b
}

// config is a worker's configuration; mutations come after.
func (b *bundle) config(t testing.TB, mutate ...func(*worker.Config)) worker.Config {
	t.Helper()

	cfg := worker.Config{
		AutoCreate: true, Consumer: durable, ID: t.Name(), Logger: slog.New(slog.DiscardHandler), Stream: stream,
		Hooks: worker.Hooks{
			Ready:   func(is bool, _ error) { offer(b.ready, is) },
			Settled: func(s worker.Settlement) { offer(b.settled, s) },
		},
	}
	for _, m := range mutate {
		m(&cfg)
	}
	return cfg
}

// offer sends to a test that may not listen.
func offer[T any](to chan T, value T) {
	select {
	case to <- value:
	default:
	}
}

// awaitSettled waits until so many attempts have ended, however they did.
func (b *bundle) awaitSettled(attempts int) {
	for range attempts {
		<-b.settled
	}
}

// wantOutcome wants an attempt to have ended in a way, and returns it.
func wantOutcome(t testing.TB, s worker.Settlement, want worker.Outcome) worker.Settlement {
	t.Helper()
	check.Require(t, s.Outcome == want, "%s: %s in attempt %d, delivery %d: %v; want %s", s.Subject, s.Outcome, s.Attempt, s.Deliveries,
		s.Err, want)
	return s
}

// running is a worker in its Run.
type running struct {
	done chan error
	once bool
	stop context.CancelFunc
	t    testing.TB
}

// run starts a worker with one handler and stops it when the test ends.
func run(t testing.TB, js jetstream.JetStream, cfg worker.Config, policy worker.Policy, h worker.Handler[order]) *running {
	t.Helper()

	w := check.Must(worker.New(js, cfg))(t)

	check.OK(t, worker.Handle(w, pattern, policy, h))
	return start(t, w)
}

// sendEach returns a handler that sends a property of each job to a channel, waits for others, and completes the job.
func sendEach[T any](to chan<- T, property func(*worker.Job[order]) T, until ...<-chan struct{}) worker.Handler[order] {
	return func(_ context.Context, job *worker.Job[order]) error {
		to <- property(job)
		for _, wait := range until {
			<-wait
		}
		return nil
	}
}

func nothing(*worker.Job[order]) (none struct{})         { return none }
func attemptOf(job *worker.Job[order]) int               { return job.Attempt }
func numberOf(job *worker.Job[order]) int                { return job.Args.N }
func subjectOf(job *worker.Job[order]) string            { return job.Subject }
func wholeJob(job *worker.Job[order]) *worker.Job[order] { return job }
func timeNow(*worker.Job[order]) time.Time               { return time.Now() }

// start runs a worker and stops it when the test ends.
func start(t testing.TB, w *worker.Worker) *running {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it is cancelled by wait, before the test's ends
	r := &running{done: make(chan error, 1), stop: cancel, t: t}

	go func() { r.done <- w.Run(ctx) }()

	t.Cleanup(func() {
		if !r.once {
			check.ErrorIs(t, r.wait(), nil)
		}
	})
	return r
}

// wait stops the worker and returns the error of Run.
func (r *running) wait() error {
	r.t.Helper()

	r.once = true
	r.stop()
	return receive(r.t, r.done, "Run to return")
}

// refuses returns the error of a Run that ends by itself.
func (r *running) refuses() error {
	r.t.Helper()

	r.once = true
	return receive(r.t, r.done, "Run to refuse")
}

// drain lets fake time pass until no job is left.
func (b *bundle) drain(t testing.TB) {
	t.Helper()

	for b.storedMessages(t) > 0 {
		natstest.Pass(time.Second)
	}
}

// publish adds a job and returns its sequence.
func (b *bundle) publish(t testing.TB, subject string, payload string) uint64 {
	t.Helper()

	ack := check.Must(b.js.Publish(t.Context(), subject, []byte(payload)))(t)
	return ack.Sequence
}

// publishN adds jobs {"n":0} to {"n":n-1} on jobs.0 and so on, each with a message ID.
func (b *bundle) publishN(t testing.TB, n int) {
	t.Helper()

	for i := range n {
		b.queue(t, fmt.Sprintf("jobs.%d", i), fmt.Appendf(nil, `{"n":%d}`, i), jetstream.WithMsgID(fmt.Sprint(i)))
	}

	receive(t, b.js.PublishAsyncComplete(), "jobs to be published")
}

// queue publishes a job without waiting for the answer. It waits while very many are under
// way, for longer than nats.go does: a machine may be slow.
func (b *bundle) queue(t testing.TB, subject string, payload []byte, opts ...jetstream.PublishOpt) {
	t.Helper()

	check.OK(t, check.Err(b.js.PublishAsync(subject, payload, append(opts, jetstream.WithStallWait(time.Minute))...)))
}

// recreate deletes the stream and recreates it, a second later: no two messages have one time. It is for bubbles only.
func (b *bundle) recreate(t testing.TB) {
	t.Helper()
	old := check.Must(b.js.Stream(t.Context(), stream))(t)
	check.OK(t, b.js.DeleteStream(t.Context(), stream))
	natstest.Pass(time.Second)
	check.OK(t, check.Err(b.js.CreateStream(t.Context(), old.CachedInfo().Config)))
}

// makeConsumer makes a consumer of the job stream, as another program does.
func (b *bundle) makeConsumer(t testing.TB, name, filter string) {
	t.Helper()
	cfg := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: name, FilterSubject: filter}
	check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, cfg)))
}

// restart restarts the server and waits for this client: an earlier request may be lost.
func (b *bundle) restart(t testing.TB) {
	t.Helper()

	connected := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(connected)

	check.OK(t, b.srv.Restart(t.Context()))

	receive(t, connected, "the client to reconnect")
}

// storedMessages is the number of messages in the job stream.
func (b *bundle) storedMessages(t testing.TB) uint64 {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), stream))(t)
	return s.CachedInfo().State.Msgs
}

// queued is the number of jobs in the stream, records left aside.
func (b *bundle) queued(t testing.TB) int {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), stream))(t)

	info := check.Must(s.Info(t.Context(), jetstream.WithSubjectFilter(pattern)))(t)
	return len(info.State.Subjects)
}

// deadLetters returns all dead deadLetters.
func (b *bundle) deadLetters(t testing.TB) []worker.DeadLetter {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)

	var all []worker.DeadLetter

	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		msg := check.Must(s.GetMsg(t.Context(), seq))(t)

		if strings.HasPrefix(msg.Subject, "$JS.") {
			continue // an advisory
		}

		letter := check.Must(worker.ParseDeadLetter(msg.Data))(t)

		all = append(all, letter)
	}
	return all
}

// patience is how long a test waits for an event that must come. It decides nothing else.
func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TEST_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}

// receive waits for a signal.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()

	timer := time.NewTimer(patience())
	defer timer.Stop()

	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("waited in vain for %s", what)

		panic("unreachable")
	}
}
