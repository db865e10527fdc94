package workertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
)

// mailer is a service that passes.
func mailer(ctx context.Context, env workertest.Env) error {
	w, err := worker.New(env.JS, worker.Config{
		AckWait: env.AckWait, AutoCreate: true, Consumer: "mailer", Logger: env.Logger, Stream: "JOBS",
	})
	if err != nil {
		return err
	}
	err = worker.Handle(w, "jobs.mail.>", worker.Policy{}, func(ctx context.Context, job *worker.Job[mail]) error {
		return env.Recorder.RecordOnce(ctx, job.ID) // the far side deduplicates by the job's ID
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
