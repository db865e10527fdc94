package worker_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// halfAcked is a server that stops between the two halves of an acknowledgement: its
// consumers have noted all of them, and their stream has removed no message since save.
// A server without replicas that shuts down can do that with the last acknowledgement that
// each consumer confirms.
type halfAcked struct {
	*bundle

	dir, saved string
	running    atomic.Pointer[natsrun.Server]
	t          *testing.T
}

func startHalfAcked(t *testing.T) *halfAcked {
	t.Helper()

	h := &halfAcked{dir: t.TempDir(), saved: filepath.Join(t.TempDir(), "saved"), t: t}
	h.start()

	h.bundle = setup(t, h.running.Load())
	h.nc.Close()
	h.nc, h.js = natstest.Connect(t, h.srv, nats.InProcessServer(h))
	return h
}

// InProcessConn implements nats.InProcessConnProvider.
func (h *halfAcked) InProcessConn() (net.Conn, error) {
	srv := h.running.Load()
	if srv == nil {
		return nil, natsrun.ErrStopped
	}
	return srv.InProcessConn()
}

func (h *halfAcked) start() {
	h.running.Store(natstest.Server(h.t, func(c *natsrun.Config) { c.Dir = h.dir }))
}

// save keeps the messages that the stream has now.
func (h *halfAcked) save() {
	h.t.Helper()
	h.whileStopped(func() error { return os.CopyFS(h.saved, os.DirFS(h.messages())) })
}

// restore restarts the server, with the messages that save kept.
func (h *halfAcked) restore() {
	h.t.Helper()
	h.whileStopped(func() error {
		if err := os.RemoveAll(h.messages()); err != nil {
			return err
		}
		return os.CopyFS(h.messages(), os.DirFS(h.saved))
	})
}

// whileStopped restarts the server and waits for the client, as bundle.restart does.
func (h *halfAcked) whileStopped(change func() error) {
	h.t.Helper()

	connected := h.nc.StatusChanged(nats.CONNECTED)
	defer h.nc.RemoveStatusListener(connected)

	h.running.Swap(nil).Stop()

	check.OK(h.t, change())

	h.start()
	receive(h.t, connected, "the client to reconnect")
}

func (h *halfAcked) messages() string {
	return filepath.Join(h.dir, "jetstream", "$G", "streams", stream, "msgs")
}

// TestConfirmedAcknowledgementRemovesItsJob restarts a server that has confirmed
// acknowledgements and lost the removal of their messages, which no consumer delivers any
// more.
func TestConfirmedAcknowledgementRemovesItsJob(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		err        error
		outcome    worker.Outcome
		priorities []worker.Priority
	}{
		"completed":        {nil, worker.OutcomeCompleted, []worker.Priority{worker.PriorityNormal}},
		"dead":             {worker.Discard(io.EOF), worker.OutcomeDead, []worker.Priority{worker.PriorityNormal}},
		"three priorities": {nil, worker.OutcomeCompleted, threeClasses},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const each = 3

			b := startHalfAcked(t)
			n := each * len(test.priorities)

			for _, p := range test.priorities {
				b.publishClass(t, classNames[p], each)
			}

			b.save()

			cfg, settled := b.reporting(t)
			runClasses(t, b.js, cfg, func(context.Context, string, *worker.Job[order]) error { return test.err }, test.priorities...)

			for range n {
				s := receive(t, settled, "a job's end")
				check.That(t, s.Outcome == test.outcome, "%s: %s, want %s", s.Subject, s.Outcome, test.outcome)
			}

			b.restore()
			check.Until(t, patience(), "the jobs to be removed", func() bool { return b.storedMessages(t) == 0 })

			check.Equal(t, len(settled), 0, "jobs that ran again")
		})
	}
}

// TestRepeatedAcknowledgementTakesNoNewJob makes the stream again while the worker is cut off.
// The sequences start over, and another worker holds the job that has the sequence of the one
// that was acknowledged.
func TestRepeatedAcknowledgementTakesNoNewJob(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		run(t, js, b.config(t), worker.Policy{}, complete)

		acked := b.publish(t, "jobs.1", `{}`)

		s := <-b.settled
		check.Require(t, <-b.ready && s.Outcome == worker.OutcomeCompleted, "the first job: %s", s.Outcome)

		p.Cut()

		check.Require(t, !<-b.ready, "ready while cut off")

		old := check.Must(check.Must(b.js.Stream(t.Context(), stream))(t).Consumer(t.Context(), durable))(t)
		b.recreate(t)
		again := check.Must(b.js.CreateConsumer(t.Context(), stream, old.CachedInfo().Config))(t)
		b.publish(t, "jobs.2", `{}`)
		held := check.Must(again.Next())(t)
		meta, err := held.Metadata()
		check.Require(t, err == nil && meta.Sequence.Stream == acked, "holds %+v, %v; want sequence %d", meta, err, acked)

		p.Heal()

		check.Require(t, <-b.ready, "not ready again")

		natstest.Pass(time.Second)

		check.Equal(t, b.storedMessages(t), 1, "messages left")

		check.ErrorIs(t, held.DoubleAck(t.Context()), nil)
	})
}

// TestCopyBehindTheConfirmationIsNotWorked brings a job to its worker again when its
// acknowledgement has been confirmed: it was on its way in the meantime.
func TestCopyBehindTheConfirmationIsNotWorked(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)

		var mu sync.Mutex
		var frame []byte // the job as it was delivered
		var reply string

		answered, repeat := 0, false // acknowledgements of the job, and whether it comes again
		worked := make(chan string, 8)

		p.Change(func(f natstest.Frame) []byte {
			mu.Lock()
			defer mu.Unlock()

			switch {
			case f.FromClient && reply != "" && f.Subject == reply:
				answered++
			case !f.FromClient && f.Subject == "jobs.a" && frame == nil:
				frame, reply = bytes.Clone(f.Raw), f.Reply
			case !f.FromClient && repeat:
				repeat = false
				return append(bytes.Clone(frame), f.Raw...)
			}
			return nil
		})

		run(t, js, b.config(t), worker.Policy{}, sendEach(worked, subjectOf))

		b.publish(t, "jobs.a", `{}`)
		receive(t, b.settled, "the first job")
		natstest.Pass(time.Millisecond) // until then it may be here still, where its copy would be dropped without an answer

		mu.Lock()
		repeat = true
		mu.Unlock()

		b.publish(t, "jobs.b", `{}`)
		receive(t, b.settled, "the second job")
		natstest.Pass(time.Second)

		check.Equal(t, len(worked), 2, "runs of two jobs")

		mu.Lock()
		defer mu.Unlock()

		check.Equal(t, answered, 2, "acknowledgements")
	})
}
