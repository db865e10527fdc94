package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// stepNames are the steps of a job of BenchmarkSteps.
var stepNames = []string{"resolve", "transcript", "extract", "check", "create"}

// BenchmarkSteps is BenchmarkJobs with five steps in each job, every one of which returns
// a little and is recorded before the next begins. "raw" is what nats.go alone needs for
// five records of one subject, each of which expects the sequence of the one before.
//
//	go test -run '^$' -bench Steps -benchtime 20000x -count 5 .
func BenchmarkSteps(b *testing.B) {
	b.Run("raw", func(b *testing.B) { benchInserts(b, insertRaw, stepsRaw) })
	b.Run("worker", func(b *testing.B) { benchInserts(b, insertRaw, stepsWorker) })
}

func stepsRaw(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()

	_, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "KV_steps", Subjects: []string{"$KV.steps.>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, Discard: jetstream.DiscardNew,
	})
	check.OK(b, err)

	consumeRaw(b, js, done, func(msg jetstream.Msg) error {
		var last uint64

		for _, name := range stepNames {
			record := &nats.Msg{Subject: "$KV.steps." + msg.Subject(), Data: fmt.Appendf(nil, `{"step":%q,"result":{"n":1}}`, name)}

			ack, err := js.PublishMsg(context.Background(), record, jetstream.WithExpectLastSequencePerSubject(last)) //nolint:usetesting // outlives the test by the clean-up
			if err != nil {
				return err
			}

			last = ack.Sequence
		}
		return nil
	})
}

func stepsWorker(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()

	separate := func(c *worker.Config) { c.StepBucket = "steps" }
	consumeWorker(b, js, done, separate, func(ctx context.Context, job *worker.Job[order]) error {
		for _, name := range stepNames {
			if _, err := step.Run(ctx, job, name, func(context.Context) (order, error) { return order{N: 1}, nil }); err != nil {
				return err
			}
		}
		return nil
	})
}
