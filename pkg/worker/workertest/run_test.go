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

func TestRunTellsEveryOutcome(t *testing.T) {
	t.Parallel()
	policy := worker.Policy{Backoff: worker.Exponential(time.Minute, time.Hour), Jitter: -1, MaxAttempts: 3}
	third := func(o *workertest.Options) { o.Attempt = 3 }
	for _, c := range []struct {
		name    string
		err     error
		outcome worker.Outcome
		delay   time.Duration
		attempt int
		mutate  func(*workertest.Options)
	}{
		{"completed", nil, worker.OutcomeCompleted, 0, 1, nil},
		{"retried by the policy", io.EOF, worker.OutcomeRetried, time.Minute, 1, nil},
		{"second attempt", io.EOF, worker.OutcomeRetried, 2 * time.Minute, 2, func(o *workertest.Options) { o.Attempt = 2 }},
		{"retried when asked", worker.Retry(time.Hour, io.EOF), worker.OutcomeRetried, time.Hour, 1, nil},
		{"snoozed", worker.Snooze(24 * time.Hour), worker.OutcomeSnoozed, 24 * time.Hour, 3, third},
		{"discarded", worker.Discard(io.EOF), worker.OutcomeDead, 0, 1, nil},
		{"exhausted", io.EOF, worker.OutcomeDead, 0, 3, third},
		{"undecodable", nil, worker.OutcomeDead, 0, 1, func(o *workertest.Options) { o.Payload = []byte("{") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.mutate == nil {
				c.mutate = func(*workertest.Options) {}
			}
			var got mail
			r := workertest.Run(t, policy, func(_ context.Context, job *worker.Job[mail]) error {
				got = job.Args
				return c.err
			}, mail{To: "ada"}, c.mutate)
			check.That(t, r.Outcome == c.outcome && r.Delay == c.delay && r.Attempt == c.attempt,
				"%s after %s, attempt %d; want %s, %s, %d", r.Outcome, r.Delay, r.Attempt, c.outcome, c.delay, c.attempt)
			check.That(t, c.err == nil || errors.Is(r.Err, c.err), "error %v, want %v", r.Err, c.err)
			dead := r.Dead != nil
			check.That(t, dead == (c.outcome == worker.OutcomeDead), "dead letter %v of a job that is %s", r.Dead, r.Outcome)
			check.That(t, c.name == "undecodable" || got.To == "ada", "the handler got %+v", got)
			if dead := r.Dead; dead != nil && (dead.ID != t.Name() || dead.Attempts != c.attempt) {
				t.Errorf("dead letter of %s after %d attempts, want %s, %d", dead.ID, dead.Attempts, t.Name(), c.attempt)
			}
		})
	}
}

func TestRunInABubbleCostsNoTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		r := workertest.Run(t, worker.Policy{Timeout: time.Hour}, func(ctx context.Context, _ *worker.Job[mail]) error {
			<-ctx.Done()
			return ctx.Err()
		}, mail{}, func(o *workertest.Options) { o.Server = srv })
		if _, ok := errors.AsType[*worker.TimeoutError](r.Err); !ok || r.Ran != time.Hour || r.Outcome != worker.OutcomeRetried {
			t.Errorf("%s after %s: %v; want retried after an hour, by the timeout", r.Outcome, r.Ran, r.Err)
		}
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
