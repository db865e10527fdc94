package worker_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// The tests of this file measure for how long a job is held back when something is lost
// between a worker and its server. These are the defaults that bound it.
const (
	ackWait        = 5 * time.Second
	requestTimeout = 2 * time.Second
	settleTimeout  = 30 * time.Second
	unhandledDelay = 5 * time.Second
)

// attemptStart is the beginning of an attempt.
type attemptStart struct {
	at  time.Time
	job *worker.Job[order]
}

// throughProxy runs a worker behind a proxy, whose handler answers its first run by err and
// the others by nil, and returns their beginnings.
func throughProxy(t *testing.T, b *bundle, policy worker.Policy, err error, mutate ...func(*worker.Config)) (*natstest.Proxy, <-chan attemptStart) {
	t.Helper()

	p, js := natstest.Proxied(t, b.srv)
	starts, ready := make(chan attemptStart, 100), make(chan bool, 100)
	mutate = append(mutate, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })

	runs := 0

	run(t, js, b.config(t, mutate...), policy, func(_ context.Context, job *worker.Job[order]) error {
		starts <- attemptStart{time.Now(), job}

		runs++
		if runs == 1 {
			return err
		}
		return nil
	})

	check.Require(t, <-ready, "not ready")
	return p, starts
}

// answers matches the messages that answer a delivery.
func answers(answer string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool {
		return strings.HasPrefix(f.Subject, "$JS.ACK.") && bytes.HasPrefix(f.Payload(), []byte(answer))
	}
}

func within(t *testing.T, what string, took, least, most time.Duration) {
	t.Helper()

	check.That(t, took >= least && took <= most, "%s took %s, want %s to %s", what, took, least, most)
}

// TestLossHoldsAJob loses a message of the first attempt, or of the look before the second.
func TestLossHoldsAJob(t *testing.T) {
	to := func(prefix string) func(natstest.Frame) bool {
		return func(f natstest.Frame) bool { return strings.HasPrefix(f.Subject, prefix) }
	}
	for name, test := range map[string]struct {
		answer      error
		lost        func(natstest.Frame) bool
		times       int
		least, most time.Duration
	}{
		"the answer that gives it back, which is sent once": {worker.Retry(time.Hour, io.EOF), answers("-NAK"), 1, 0, 2 * ackWait},
		"the records of uncounted deliveries, so that the delivery uses an attempt": {
			worker.Snooze(time.Second), to("$KV.jobs.excused."), 1000, time.Second, 2*ackWait + requestTimeout,
		},
		"the request for the record of its end, which is unknown then": {
			worker.Retry(time.Second, io.EOF), to("$JS.API.STREAM.MSG.GET." + stream), 1, time.Second + unhandledDelay,
			time.Second + requestTimeout + unhandledDelay + time.Second,
		},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			p, starts := throughProxy(t, b, worker.Policy{}, test.answer)
			natstest.Pass(time.Second) // the worker is in contact, so it reads no record of a first delivery
			p.Hit(test.lost, natstest.WriteLost, test.times)
			insert(t, client(t, b.js), mail(worker.Unique{Keep: time.Hour}))
			first, second := <-starts, <-starts
			within(t, "the next attempt", second.at.Sub(first.at), test.least, test.most)
			check.Equal(t, second.job.Attempt, 2, "attempt")
		})
	}
}

// TestUnconfirmedAcknowledgementHoldsAJobForSettleTimeout loses acknowledgements until the
// worker leaves the job to be delivered again.
func TestUnconfirmedAcknowledgementHoldsAJobForSettleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, starts := throughProxy(t, b, worker.Policy{}, nil)
		p.Hit(answers("+ACK"), natstest.WriteLost, 1000)
		b.publish(t, "jobs.1", `{}`)

		first := <-starts

		wantOutcome(t, <-b.settled, worker.OutcomeUnknown)

		p.Filter(nil)

		second := <-starts
		within(t, "the next attempt", second.at.Sub(first.at), settleTimeout, settleTimeout+requestTimeout+2*ackWait)

		s := <-b.settled
		check.That(t, s.Outcome == worker.OutcomeCompleted && b.storedMessages(t) == 0, "the second attempt: %s, %d left", s.Outcome, b.storedMessages(t))
	})
}

// TestJobSentToACutOffWorkerRunsElsewhereAfterAckWait cuts a worker off that has asked for jobs. The
// server sends it one, and waits for AckWait.
func TestJobSentToACutOffWorkerRunsElsewhereAfterAckWait(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, starts := throughProxy(t, b, worker.Policy{}, nil)
		natstest.Pass(100 * time.Millisecond) // the request is at the server
		p.Partition()

		sent := time.Now()
		b.publish(t, "jobs.1", `{}`)

		again := make(chan attemptStart, 1)
		run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			again <- attemptStart{time.Now(), job}
			return nil
		})

		other := <-again
		within(t, "the job", other.at.Sub(sent), ackWait, ackWait+time.Second)

		check.That(t, other.job.Attempt == 2 && len(starts) == 0, "attempt %d, and %d elsewhere; want 2, none", other.job.Attempt, len(starts))

		p.Heal()
	})
}

// TestSilentConnectionIsGivenUpByItsPings loses all that a worker sends and gets. Nothing
// distinguishes that from an idle server but the client's pings, every two minutes
// by default, of which two may be unanswered.
func TestSilentConnectionIsGivenUpByItsPings(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		lost := make(chan time.Time, 1)
		p := natstest.NewProxy(t, b.srv)
		_, js := natstest.Connect(t, b.srv, p.Through(), nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- time.Now() }))
		starts := make(chan time.Time, 1)
		run(t, js, b.config(t), worker.Policy{}, sendEach(starts, timeNow))
		<-b.ready
		p.Partition()

		begun := time.Now()

		is := <-b.ready
		check.That(t, !is, "ready without a server")

		within(t, "noticing that the server says nothing", time.Since(begun), 0, 5*time.Second)

		gone := <-lost
		within(t, "giving up the connection", gone.Sub(begun), 2*nats.DefaultPingInterval, 3*nats.DefaultPingInterval)

		b.publish(t, "jobs.1", `{}`)
		p.Heal()

		healed := time.Now()
		within(t, "the job", (<-starts).Sub(healed), 0, time.Second)
	})
}

// TestConsumerThatAnOperatorMakesIsFoundInTwoSeconds deletes the consumer of a worker that
// may not make it, for long enough that the worker asks as rarely as it ever does.
func TestConsumerThatAnOperatorMakesIsFoundInTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		maker := run(t, b.js, b.config(t), worker.Policy{}, complete)
		b.publish(t, "jobs.1", `{}`)

		b.drain(t)

		check.OK(t, maker.wait())

		_, starts := throughProxy(t, b, worker.Policy{}, nil, func(c *worker.Config) { c.AutoCreate = false })

		consumer := check.Must(b.js.Consumer(t.Context(), stream, durable))(t)

		check.OK(t, b.js.DeleteConsumer(t.Context(), stream, durable))

		b.publish(t, "jobs.2", `{}`)
		natstest.Pass(10 * time.Minute)

		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, consumer.CachedInfo().Config)))

		made := time.Now()
		within(t, "the job", (<-starts).at.Sub(made), 0, 2*time.Second)
	})
}

// TestLostPushHoldsALimitedJobForTwoSeconds keeps from a worker the pushes about the
// permit that it waits for.
func TestLostPushHoldsALimitedJobForTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started, leave, waits := make(chan struct{}), make(chan struct{}), make(chan bool, 10)
		one := func(c *worker.Config) { c.Concurrency = 1 } // so that the second job goes to the other worker
		run(t, b.js, b.config(t, one), oneAtATime, sendEach(started, nothing, leave))
		b.publish(t, "jobs.1", `{}`)
		<-started

		p, starts := throughProxy(t, b, oneAtATime, nil, func(c *worker.Config) {
			c.Hooks.Waiting = func(_ worker.Info, is bool) { waits <- is }
		})
		b.publish(t, "jobs.2", `{}`)
		<-waits
		natstest.Pass(10 * time.Second) // it stands in the line of the permit

		p.Filter(natstest.Losing(func(f natstest.Frame) bool { return !f.FromClient && strings.HasPrefix(f.Subject, "$KV.jobs.limits.") }))

		left := time.Now()
		close(leave)
		within(t, "the next job", (<-starts).at.Sub(left), time.Millisecond, 2*time.Second+100*time.Millisecond)
	})
}
