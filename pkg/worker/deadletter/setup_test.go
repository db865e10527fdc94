package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// bundle is the environment of a test: a job stream, a dead letter stream and its store.
type bundle struct {
	js    jetstream.JetStream
	nc    *nats.Conn
	srv   *natsrun.Server
	store *deadletter.Store
}

func setup(t testing.TB, srv *natsrun.Server, mutate ...func(*jetstream.StreamConfig)) *bundle {
	t.Helper()

	if srv == nil {
		srv = natstest.Server(t)
	}

	b := &bundle{srv: srv}
	b.nc, b.js = natstest.Connect(t, srv)

	jobs := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy}
	for _, m := range mutate {
		m(&jobs)
	}

	b.stream(t, jobs)
	b.stream(t, jetstream.StreamConfig{
		Name: "DEAD", AllowDirect: true, Duplicates: 24 * time.Hour, MaxAge: 30 * 24 * time.Hour,
		Subjects: []string{"dead.>", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"},
	})

	b.store = b.open(t, b.js)
	return b
}

// requestTimeout is the default under fake time. Elsewhere a busy machine is not a server that is silent.
func requestTimeout() time.Duration {
	if time.Now().Year() > 2000 {
		return time.Minute
	}
	return 0
}

func (b *bundle) open(t testing.TB, js jetstream.JetStream) *deadletter.Store {
	t.Helper()
	return check.Must(deadletter.Open(t.Context(), js, deadletter.Config{RequestTimeout: requestTimeout()}))(t)
}

func (b *bundle) stream(t testing.TB, cfg jetstream.StreamConfig) {
	t.Helper()

	check.OK(t, check.Err(b.js.CreateStream(t.Context(), cfg)))
}

// letter is a dead letter of a job jobs.mail.<n>.
func letter(n int, mutate ...func(*worker.DeadLetter)) worker.DeadLetter {
	l := worker.DeadLetter{
		Attempts: 3, Consumer: "mailer", DeadAt: time.Now(), Deliveries: 3, EnqueuedAt: time.Unix(int64(n), 0).UTC(),
		Error: fmt.Sprintf("smtp: code %d", n), Header: map[string][]string{"Nats-Msg-Id": {fmt.Sprint("id-", n)}, "traceparent": {"00-1"}},
		ID: fmt.Sprint("id-", n), MaxAttempts: 3, Payload: fmt.Appendf(nil, `{"n":%d}`, n), Reason: worker.ReasonExhausted,
		Sequence: uint64(n), Signature: "smtp: code #", Stream: "JOBS", Subject: fmt.Sprintf("jobs.mail.%d", n), Worker: "w1",
	}
	for _, m := range mutate {
		m(&l)
	}
	return l
}

// put stores a letter and returns its sequence.
func (b *bundle) put(t testing.TB, l worker.DeadLetter) uint64 {
	t.Helper()
	return check.Must(worker.PublishDeadLetter(t.Context(), b.js, "dead", l))(t)
}

// list returns the entries that a filter selects.
func (b *bundle) list(t testing.TB, f deadletter.Filter, order deadletter.Order) []deadletter.Entry {
	t.Helper()

	var all []deadletter.Entry

	for e, err := range b.store.List(t.Context(), f, order) {
		check.OK(t, err)

		all = append(all, e)
	}
	return all
}

// replay replays and wants the counts.
func (b *bundle) replay(t testing.TB, f deadletter.Filter, opts deadletter.ReplayOptions, want deadletter.Result) []deadletter.Outcome {
	t.Helper()

	var outcomes []deadletter.Outcome

	opts.Each = func(o deadletter.Outcome) { outcomes = append(outcomes, o) }

	got := check.Must(b.store.Replay(t.Context(), f, opts))(t)

	check.Require(t, got == want, "%+v, want %+v; outcomes: %v", got, want, outcomes)
	return outcomes
}

// messages is how many messages a stream has.
func (b *bundle) messages(t testing.TB, stream string) uint64 {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), stream))(t)
	return s.CachedInfo().State.Msgs
}

// wantLeft wants so many messages in the streams of the jobs and of the dead letters.
func (b *bundle) wantLeft(t testing.TB, jobs, dead uint64) {
	t.Helper()
	check.Equal(t, b.messages(t, "JOBS"), jobs, "jobs")
	check.Equal(t, b.messages(t, "DEAD"), dead, "messages in the dead letter stream")
}

// job returns the message of a stream with a sequence.
func (b *bundle) job(t testing.TB, seq uint64) *jetstream.RawStreamMsg {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), "JOBS"))(t)
	return check.Must(s.GetMsg(t.Context(), seq))(t)
}

// startWorker runs a worker until stop is called.
func (b *bundle) startWorker(t testing.TB, handler worker.Handler[any]) (settled chan worker.Settlement, stop func()) {
	t.Helper()
	settled = make(chan worker.Settlement, 1000)
	w := check.Must(worker.New(b.js, worker.Config{
		AutoCreate: true, Consumer: "mailer", Logger: slog.New(slog.DiscardHandler), RequestTimeout: requestTimeout(), Stream: "JOBS",
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) { settled <- s }},
	}))(t)
	check.OK(t, worker.Handle(w, "jobs.>", worker.Policy{MaxAttempts: 1}, handler))
	return settled, natstest.Background(t, w.Run)
}

// work runs a worker until it has settled n jobs, and returns the jobs.
func (b *bundle) work(t testing.TB, n int, err error) []worker.Settlement {
	t.Helper()
	settled, stop := b.startWorker(t, func(context.Context, *worker.Job[any]) error { return err })

	all := make([]worker.Settlement, 0, n)
	for range n {
		all = append(all, <-settled)
	}

	stop()
	return all
}

// cut is a JetStream context whose owner dies at a publication: before the server has it,
// or after.
type cut struct {
	jetstream.JetStream

	after bool         // the server still gets it
	hits  atomic.Int32 // publications to let pass before
	to    string       // prefix of the subject
}

var errCut = fmt.Errorf("cut: %w", context.Canceled) // which is not tried again

func (c *cut) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !strings.HasPrefix(msg.Subject, c.to) || c.hits.Add(-1) >= 0 {
		return c.JetStream.PublishMsg(ctx, msg, opts...)
	}

	if c.after {
		if _, err := c.JetStream.PublishMsg(ctx, msg, opts...); err != nil {
			return nil, err
		}
	}
	return nil, errCut
}

// die replays with a store whose owner dies at the publication to a prefix.
func (b *bundle) die(t testing.TB, to string, after bool) {
	t.Helper()

	dying := b.open(t, &cut{JetStream: b.js, after: after, to: to})
	_, err := dying.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	check.Require(t, errors.Is(err, errCut), "%v, want the cut", err)
}
