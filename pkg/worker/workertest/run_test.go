package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// mail is the arguments of the tests' jobs.
type mail struct {
	To string `json:"to"`
}

func TestRunReportsEveryOutcome(t *testing.T) {
	t.Parallel()
	policy := worker.Policy{Backoff: worker.Exponential(time.Minute, time.Hour), Jitter: -1, MaxAttempts: 3}
	for _, c := range []struct {
		name    string
		err     error
		outcome worker.Outcome
		delay   time.Duration
		attempt int
		payload []byte
	}{
		{"completed", nil, worker.OutcomeCompleted, 0, 1, nil},
		{"retried by the policy", io.EOF, worker.OutcomeRetried, time.Minute, 1, nil},
		{"second attempt", io.EOF, worker.OutcomeRetried, 2 * time.Minute, 2, nil},
		{"retried when asked", worker.Retry(time.Hour, io.EOF), worker.OutcomeRetried, time.Hour, 1, nil},
		{"snoozed", worker.Snooze(24 * time.Hour), worker.OutcomeSnoozed, 24 * time.Hour, 3, nil},
		{"discarded", worker.Discard(io.EOF), worker.OutcomeDead, 0, 1, nil},
		{"exhausted", io.EOF, worker.OutcomeDead, 0, 3, nil},
		{"undecodable", nil, worker.OutcomeDead, 0, 1, []byte("{")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got mail
			r := workertest.Run(t, policy, func(_ context.Context, job *worker.Job[mail]) error {
				got = job.Args
				return c.err
			}, mail{To: "ada"}, func(o *workertest.Options) { o.Attempt, o.Payload = c.attempt, c.payload })
			check.That(t, r.Outcome == c.outcome && r.Delay == c.delay && r.Attempt == c.attempt,
				"%s after %s, attempt %d; want %s, %s, %d", r.Outcome, r.Delay, r.Attempt, c.outcome, c.delay, c.attempt)
			check.That(t, c.err == nil || errors.Is(r.Err, c.err), "error %v, want %v", r.Err, c.err)
			dead := r.Dead
			check.That(t, (dead != nil) == (c.outcome == worker.OutcomeDead), "dead letter %v of a job that is %s", r.Dead, r.Outcome)
			check.That(t, c.name == "undecodable" || got.To == "ada", "the handler got %+v", got)
			check.That(t, dead == nil || dead.ID == t.Name() && dead.Attempts == c.attempt, "dead letter %+v, want attempt %d", dead, c.attempt)
		})
	}
}

func TestRunInABubbleCostsNoTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		r := workertest.Run(t, worker.Policy{Timeout: time.Hour}, func(ctx context.Context, _ *worker.Job[mail]) error {
			<-ctx.Done()
			return ctx.Err()
		}, mail{}, func(o *workertest.Options) { o.Server = srv })
		_, ok := errors.AsType[*worker.TimeoutError](r.Err)
		check.That(t, ok && r.Ran == time.Hour && r.Outcome == worker.OutcomeRetried,
			"%s after %s: %v; want retried after an hour, by the timeout", r.Outcome, r.Ran, r.Err)
	})
}

func TestRunTwiceOnOneServer(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	for range 2 {
		r := workertest.Run(t, worker.Policy{}, func(context.Context, *worker.Job[mail]) error { panic("no") }, mail{},
			func(o *workertest.Options) { o.Server = srv })
		_, ok := errors.AsType[*worker.PanicError](r.Err)
		check.That(t, ok, "error %v, want a panic", r.Err)
	}
	workertest.Run(t, worker.Policy{}, func(_ context.Context, job *worker.Job[[]byte]) error {
		check.Equal(t, string(job.Args), "x", "bytes")
		return nil
	}, []byte("x"), func(o *workertest.Options) { o.Server = srv })
}

// mailer is a service that passes.
func mailer(ctx context.Context, env workertest.Env) error {
	w, err := worker.New(env.JS, worker.Config{
		AckWait: env.AckWait, AutoCreate: true, Consumer: "mailer", Logger: env.Logger, Stream: "JOBS",
	})
	if err != nil {
		return err
	}
	err = worker.Handle(w, "jobs.mail.>", worker.Policy{}, func(ctx context.Context, job *worker.Job[mail]) error {
		return env.Recorder.RecordOnce(ctx, job.ID) // the remote service deduplicates by the job's ID
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func newMail(n int) *nats.Msg {
	return &nats.Msg{Subject: fmt.Sprintf("jobs.mail.u%d", n), Data: []byte(`{"to":"ada"}`)}
}

func TestMailer(t *testing.T) {
	workertest.Conform(t, workertest.Suite{Job: newMail, Service: mailer})
}
