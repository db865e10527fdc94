package worker_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestJobStaysWhileItsDeadLetterCannotBePublished takes the stream of dead letters away.
func TestJobStaysWhileItsDeadLetterCannotBePublished(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		var runs atomic.Int32

		run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, func(context.Context, *worker.Job[order]) error {
			runs.Add(1)
			return io.EOF
		})
		<-b.ready

		dead := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)

		check.OK(t, b.js.DeleteStream(t.Context(), "DEAD"))

		b.publish(t, "jobs.1", `{}`)

		for range 3 {
			wantOutcome(t, <-b.settled, worker.OutcomeUnknown)

			check.Require(t, b.storedMessages(t) == 1, "the job is gone and has no letter")
		}

		check.OK(t, check.Err(b.js.CreateStream(t.Context(), dead.CachedInfo().Config)))

		made := time.Now()

		for s := range b.settled {
			if s.Outcome == worker.OutcomeDead {
				break
			}
		}

		within(t, "the letter", time.Since(made), 0, unhandledDelay+requestTimeout)

		letters := b.deadLetters(t)
		check.Require(t, len(letters) == 1 && b.storedMessages(t) == 0 && runs.Load() == 1, "%d letters, %d left, %d runs; want 1, 0, 1", len(letters),
			b.storedMessages(t), runs.Load())
		check.That(t, letters[0].Attempts == 1 && strings.HasSuffix(letters[0].Error, "attempt 1 failed, and the policy allows 1: EOF"),
			"%+v", letters[0])
	})
}

// TestMessageWithoutHandlerWaitsForAWorkerThatHasOne is a rolling update: a newer worker
// has widened the consumer.
func TestMessageWithoutHandlerWaitsForAWorkerThatHasOne(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		older := check.Must(worker.New(b.js, b.config(t)))(t)
		check.OK(t, worker.Handle(older, "jobs.old", worker.Policy{}, complete))

		old := start(t, older)
		<-b.ready

		consumer := check.Must(b.js.Consumer(t.Context(), stream, durable))(t)

		wider := consumer.CachedInfo().Config
		wider.FilterSubjects = []string{pattern}

		check.OK(t, check.Err(b.js.UpdateConsumer(t.Context(), stream, wider)))

		b.publish(t, "jobs.new", `{}`)

		wantOutcome(t, <-b.settled, worker.OutcomeSnoozed)

		check.ErrorIs(t, old.wait(), nil)

		putOff := time.Now()
		job := make(chan *worker.Job[order], 1)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(job, wholeJob))

		j := <-job
		check.That(t, j.Attempt == 1, "attempt %d, want 1", j.Attempt)

		within(t, "the job", time.Since(putOff), 0, unhandledDelay)
	})
}

func TestNoMoreThanConcurrencyRunAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const limit = 3

		b.publishN(t, 50)

		var now, most atomic.Int32

		cfg := b.config(t, func(c *worker.Config) { c.Concurrency = limit })
		run(t, b.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)

			taken := check.Must(b.js.Consumer(t.Context(), stream, durable))(t).CachedInfo().NumAckPending
			check.That(t, taken <= limit, "%d messages taken, want at most %d", taken, limit)

			natstest.Pass(time.Duration(job.Args.N%5+1) * time.Second)
			return nil
		})

		for range 50 {
			wantOutcome(t, <-b.settled, worker.OutcomeCompleted)
		}

		check.Equal(t, most.Load(), limit, "ran at once")
	})
}

// TestOnDeadLetterComesBeforeTheEnd dead-letters jobs for every reason. Policy.OnDeadLetter fails, panics, hangs and then
// succeeds: until then there is no letter, and the job is in its stream.
func TestOnDeadLetterComesBeforeTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		fails  error
		decode error
		reason worker.Reason
	}{
		"exhausted":   {io.EOF, nil, worker.ReasonExhausted},
		"discarded":   {worker.Discard(io.EOF), nil, worker.ReasonDiscarded},
		"undecodable": {nil, io.EOF, worker.ReasonUndecodable},
	} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			asked, answer := make(chan worker.DeadLetter), make(chan error, 1)
			attempts := 10 // it is tried to be read, or its handler runs, each time

			if test.reason == worker.ReasonExhausted {
				attempts = 1
			}

			run(t, b.js, b.config(t), worker.Policy{
				OnDeadLetter: func(ctx context.Context, letter worker.DeadLetter) error {
					select {
					case asked <- letter:
					case <-ctx.Done():
						return ctx.Err()
					}

					select {
					case err := <-answer:
						switch {
						case errors.Is(err, io.ErrUnexpectedEOF):
							panic(err)
						case errors.Is(err, io.ErrNoProgress):
							<-t.Context().Done() // as if for ever
						}
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				},
				Decode:      func(nats.Header, []byte, any) error { return test.decode },
				MaxAttempts: attempts,
			}, func(context.Context, *worker.Job[order]) error { return test.fails })
			b.publish(t, "jobs.1", `{"n":1}`)

			for i, err := range []error{io.ErrClosedPipe, io.ErrUnexpectedEOF, io.ErrNoProgress, nil} {
				letter := receive(t, asked, "a letter")
				check.That(t,
					letter.Subject == "jobs.1" && string(letter.Payload) == `{"n":1}` && letter.Reason == test.reason && letter.Stream == stream,
					"call %d: %+v", i+1, letter)

				left, letters := b.storedMessages(t), b.deadLetters(t)
				check.That(t, left == 1 && len(letters) == 0, "call %d: %d jobs are left, %d letters; want 1 and none", i+1, left, len(letters))
				answer <- err

				want := worker.OutcomeUnknown
				if err == nil {
					want = worker.OutcomeDead
				}

				s := receive(t, b.settled, "a settlement")
				check.That(t, s.Outcome == want, "call %d: %s, want %s", i+1, s.Outcome, want)
			}

			left, letters := b.storedMessages(t), b.deadLetters(t)
			check.That(t, left == 0 && len(letters) == 1, "%d jobs are left, %d letters; want none and 1", left, len(letters))
		})
	}
}

// TestDeadLetterIsStoredWhateverItHolds gives up jobs whose ids, headers, subjects and errors are as large and strange as a server takes
// them.
func TestDeadLetterIsStoredWhateverItHolds(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	strange := "\x00\r\nNats-Rollup: all\xff" + strings.Repeat("\x01", 5000)
	run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, func(context.Context, *worker.Job[order]) error { return errors.New(strange) })
	for subject, header := range map[string]nats.Header{
		"jobs.id":                              {nats.MsgIdHdr: {strings.Repeat("<", 60_000)}}, // six bytes each in JSON
		"jobs.bytes":                           {nats.MsgIdHdr: {strings.Repeat("\x01\xff", 30_000)}},
		"jobs.header":                          {"A": {strings.Repeat("\x01", 60_000)}},
		"jobs.headers":                         {"A": slices.Repeat([]string{"<"}, 10_000)},
		"jobs.own-id":                          {worker.HeaderID: {strings.Repeat("é", 30_000)}},
		"jobs." + strings.Repeat("x", 4060):    nil, // just within a line of the protocol
		"jobs." + strings.Repeat("é", 2000):    nil,
		"jobs" + strings.Repeat(".long", 800):  nil,
		"jobs" + strings.Repeat("."+"x", 2000): nil,
	} {
		check.OK(t, b.nc.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: []byte("{}")}))
		s := receive(t, b.settled, "a settlement")
		wantOutcome(t, s, worker.OutcomeDead)
		letters := b.deadLetters(t)
		last := letters[len(letters)-1]
		check.That(t, last.Subject == subject && string(last.Payload) == "{}" && len(last.Header) == len(header), "%.80s: the letter is of %.80s", subject, last.Subject)
	}
}
