package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Moments at which a worker's process may die, by the message that it cannot send any more.
var (
	beforeAck = func(f natstest.Frame) bool {
		return f.FromClient && strings.HasPrefix(f.Subject, "$JS.ACK.") && body(f) == "+ACK"
	}
	beforeLetter = func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, "dead.") }
	beforeRecord = func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, "jobs-done.") }
)

// killWorker runs a worker whose process dies at a moment of the job that insert inserts, and returns the error of its Run.
func (b *bundle) killWorker(t *testing.T, moment func(natstest.Frame) bool, h worker.Handler[order], insert func()) error {
	t.Helper()
	p := natstest.NewProxy(t, b.srv)
	nc, js := natstest.Connect(t, b.srv, p.Through())
	killed := dieAt(p, moment)
	dying := run(t, js, b.config(t, stopAtOnce), worker.Policy{}, h)
	insert()
	<-killed
	nc.Close()
	return dying.wait()
}

// TestWorkerKilledAroundTheRecord kills the worker of a unique job at every step of its
// end. The key is never free before, and the job does not run again once it is recorded.
func TestWorkerKilledAroundTheRecord(t *testing.T) {
	for name, test := range map[string]struct {
		moment func(natstest.Frame) bool
		dies   bool // the job does, every time
		runs   int32
		keep   time.Duration
		before worker.State // after the kill
		after  worker.State // in the end
	}{
		"done, before the record":         {moment: beforeRecord, runs: 2, keep: time.Hour, before: worker.StateQueued, after: worker.StateDone},
		"done, record, before the ack":    {moment: beforeAck, runs: 1, keep: time.Hour, before: worker.StateDone, after: worker.StateDone},
		"done, not kept, before the ack":  {moment: beforeAck, runs: 2, before: worker.StateQueued, after: free},
		"dead, before the letter":         {moment: beforeLetter, dies: true, runs: 2, before: worker.StateQueued, after: worker.StateDead},
		"dead, letter, before the record": {moment: beforeRecord, dies: true, runs: 2, before: worker.StateQueued, after: worker.StateDead},
		"dead, record, before the ack":    {moment: beforeAck, dies: true, runs: 1, before: worker.StateDead, after: worker.StateDead},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)

			var runs atomic.Int32

			handler := func(context.Context, *worker.Job[order]) error {
				runs.Add(1)

				if test.dies {
					return worker.Discard(errors.New("no"))
				}
				return nil
			}

			err := b.killWorker(t, test.moment, handler, func() { insert(t, c, mail(worker.Unique{Keep: test.keep})) })
			check.That(t, err == nil || errors.Is(err, nats.ErrConnectionClosed), "Run: %v", err)

			r := insert(t, c, mail(worker.Unique{HoldDead: true}))
			check.That(t, r.Duplicate && r.State == test.before, "after the kill: %+v, want a duplicate of one that is %s", r, test.before)

			cfg, outcomes := b.reporting(t)
			run(t, b.js, cfg, worker.Policy{}, handler)

			want := worker.OutcomeCompleted
			if test.dies {
				want = worker.OutcomeDead
			}

			check.Equal(t, wantOutcome(t, <-outcomes, want).Deliveries, 2, "delivery to the second worker")
			check.Equal(t, jobOf(t, c, mailRef).State, test.after, "state in the end")
			check.Equal(t, runs.Load(), test.runs, "runs")

			n := len(b.deadLetters(t))
			check.That(t, test.dies == (n == 1) && n <= 1, "%d letters", n)
		})
	}
}

func TestRecordWhoseAnswerIsLostIsFound(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		p.Hit(beforeRecord, natstest.ReplyLost, 1)

		run(t, js, b.config(t), worker.Policy{}, complete)
		insert(t, client(t, b.js), mail(worker.Unique{Keep: time.Hour}))

		check.Equal(t, wantOutcome(t, <-b.settled, worker.OutcomeCompleted).Deliveries, 1, "delivery")
		check.Equal(t, b.storedMessages(t), 1, "messages left")
	})
}

// TestZombieSaysNothingOfItsKey lets a worker that was cut off finish a job that another one has
// finished, and whose key a new job has taken.
func TestZombieSaysNothingOfItsKey(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		p, js := natstest.Proxied(t, b.srv)

		started, wake := make(chan struct{}), make(chan struct{})

		cfg, zombies := b.reporting(t)
		run(t, js, cfg, worker.Policy{}, sendEach(started, nothing, wake))
		insert(t, c, mail(worker.Unique{Keep: time.Minute}))
		<-started
		p.Filter(natstest.Losing(func(f natstest.Frame) bool { // its heartbeats do not arrive, and it asks for nothing more
			return isHeartbeat(f) || f.FromClient && strings.Contains(f.Subject, "MSG.NEXT")
		}))

		cfg, outcomes := b.reporting(t)
		second := run(t, b.js, cfg, worker.Policy{}, complete)
		<-outcomes

		check.ErrorIs(t, second.wait(), nil)

		natstest.Pass(2 * time.Minute) // the record has expired

		r := insert(t, c, mail(worker.Unique{Keep: time.Minute}))
		close(wake)
		<-zombies

		s := jobOf(t, c, mailRef)
		check.That(t, s.State == worker.StateQueued && s.ID == r.ID, "%+v; want the new job %s, queued", s, r.ID)
	})
}

func TestKeyIsFreeWhenItsTimeIsUp(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			if job.Header.Get("Fail") != "" {
				return worker.Discard(errors.New("no"))
			}
			return nil
		})

		held := worker.Unique{HoldDead: true, Keep: 90*time.Second + 1}
		insert(t, c, mail(held))
		<-b.settled
		natstest.Pass(90*time.Second + time.Second/2)

		r := insert(t, c, mail(held))
		check.That(t, r.Duplicate && r.State == worker.StateDone, "after 90.5s: %+v, want a duplicate: kept for 91s, rounded up", r)

		natstest.Pass(time.Second)

		failing := mail(held)
		failing.Header = nats.Header{"Fail": {"1"}}

		r = insert(t, c, failing)
		check.That(t, !r.Duplicate, "after 91.5s: %+v, want it accepted", r)

		<-b.settled

		r = insert(t, c, mail(held))
		check.That(t, r.Duplicate && r.State == worker.StateDead, "beside a dead one: %+v", r)

		// A server that ticks for thirty days takes minutes, so its promise to expire the record is enough here.
		stream := check.Must(b.js.Stream(t.Context(), "JOBS"))(t)
		record := check.Must(stream.GetMsg(t.Context(), check.Must(stream.Info(t.Context()))(t).State.LastSeq))(t)
		check.Equal(t, record.Header.Get("Nats-TTL"), "720h0m0s", "life of the record of a dead job")
	})
}

func TestStreamWithoutRecordsFreesTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		var log events

		run(t, b.js, b.config(t, func(c *worker.Config) { c.Logger = log.logger() }), worker.Policy{}, complete)
		msg := &nats.Msg{Subject: "jobs.mail.u17", Header: nats.Header{worker.HeaderKeep: {"1h"}}, Data: []byte(`{}`)}
		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))
		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)
		check.Equal(t, b.storedMessages(t), 0, "messages left")
		check.Equal(t, log.count(worker.EventRecordFailed), 1, "reports")
	})
}
