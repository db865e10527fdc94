package test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
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

// BenchmarkLimits works no-op jobs that are there already, in 100 slots of one worker or of two: without a limit, with one
// key of which 10 may run, and with 10,000 keys of which one each. Writes are those to the bucket: of permits, of uncounted
// deliveries, of the lease.
//
//	go test -run '^$' -bench Limits -benchtime 20000x -count 3 .
func BenchmarkLimits(b *testing.B) {
	one := worker.Limit{Concurrency: 10, Name: "one"}
	many := worker.Limit{Concurrency: 1, Name: "many", Key: func(info worker.Info, _ nats.Header, _ []byte) string {
		return strconv.FormatUint(info.Sequence%10_000, 10)
	}}

	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("none/workers=%d", workers), func(b *testing.B) { benchLimits(b, workers) })
		b.Run(fmt.Sprintf("one/workers=%d", workers), func(b *testing.B) { benchLimits(b, workers, one) })
		b.Run(fmt.Sprintf("many/workers=%d", workers), func(b *testing.B) { benchLimits(b, workers, many) })
	}
}

func benchLimits(b *testing.B, workers int, limits ...worker.Limit) {
	b.Helper()

	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen = true })
	set := setup(b, srv)

	for i := range b.N {
		set.queue(b, "jobs."+strconv.Itoa(i), []byte(`{}`))
	}

	receive(b, set.js.PublishAsyncComplete(), "the jobs to be published")

	var left, back atomic.Int64

	left.Store(int64(b.N))

	all := make(chan struct{})
	cfg := set.config(b, func(c *worker.Config) {
		c.Concurrency = slots
		c.Hooks.Settled = func(s worker.Settlement) {
			switch {
			case s.Outcome == worker.OutcomeLimited:
				back.Add(1)
			case s.Outcome == worker.OutcomeCompleted && left.Add(-1) == 0:
				close(all)
			}
		}
	})

	before := cpu(b)

	b.ResetTimer()

	for range workers {
		_, js := natstest.ConnectURL(b, srv.URL())
		run(b, js, cfg, worker.Policy{Limits: limits}, func(context.Context, *worker.Job[order]) error { return nil })
	}

	receive(b, all, "all jobs")
	b.StopTimer()

	bucket, err := set.js.Stream(b.Context(), "KV_jobs")
	check.OK(b, err)

	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/n, "cpu-µs/job")
	b.ReportMetric(float64(bucket.CachedInfo().State.LastSeq)/n, "writes/job")
	b.ReportMetric(float64(back.Load())/n, "given-back/job")
	b.ReportMetric(0, "ns/op")
}
