package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	producers = 32
	slots     = 100
)

// BenchmarkJobs inserts unique no-op jobs from 32 producers, one at a time each, and works
// them in 100 slots until the server has confirmed each. "raw" is what nats.go alone needs
// for the same. TCP loopback, R1 file, sync_interval 1s; CPU is that of client and server.
//
//	go test -run '^$' -bench Jobs -benchtime 50000x -count 5 .
func BenchmarkJobs(b *testing.B) {
	b.Run("raw", func(b *testing.B) { benchJobs(b, workRaw) })
	b.Run("worker", func(b *testing.B) { benchJobs(b, workWorker) })
}

func benchJobs(b *testing.B, work func(b *testing.B, js jetstream.JetStream, done func())) {
	b.Helper()

	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen = true })
	set := setup(b, srv)
	_, js := natstest.ConnectURL(b, srv.URL())
	_, insert := natstest.ConnectURL(b, srv.URL())

	var left atomic.Int64

	all := make(chan struct{})

	left.Store(int64(b.N))
	work(b, js, func() {
		if left.Add(-1) == 0 {
			close(all)
		}
	})

	before := cpu(b)

	b.ResetTimer()

	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := p; i < b.N; i += producers {
				id := fmt.Sprintf("%d", i)
				if _, err := insert.Publish(b.Context(), "jobs."+id, []byte(`{"n":1}`), jetstream.WithMsgID(id)); err != nil {
					b.Error(err)

					return
				}
			}
		})
	}

	group.Wait()
	receive(b, all, "all jobs")
	b.StopTimer()

	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/job")
	b.ReportMetric(0, "ns/op")

	if left := set.left(b); left != 0 {
		b.Errorf("%d jobs left", left)
	}
}

func workRaw(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()

	consumer, err := js.CreateConsumer(b.Context(), stream, jetstream.ConsumerConfig{Durable: durable, MaxAckPending: -1})
	if err != nil {
		b.Fatal(err)
	}

	jobs := make(chan jetstream.Msg)

	var group sync.WaitGroup
	for range slots {
		group.Go(func() {
			for msg := range jobs {
				if err := msg.DoubleAck(context.Background()); err != nil { //nolint:usetesting // outlives the test by the clean-up
					b.Error(err)
				}

				done()
			}
		})
	}

	consuming, err := consumer.Consume(func(msg jetstream.Msg) { jobs <- msg }, jetstream.PullMaxMessages(slots))
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
		close(jobs)
		group.Wait()
	})
}

func workWorker(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()

	set := &bundle{js: js}
	cfg := set.config(b, func(c *worker.Config) {
		c.Concurrency = slots
		c.Hooks.Settled = func(worker.Settlement) { done() }
	})
	run(b, js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })
}

// BenchmarkStart inserts a job each 5 ms and measures from the call to the handler's start.
//
//	go test -run '^$' -bench Start -benchtime 2000x .
func BenchmarkStart(b *testing.B) {
	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen = true })
	setup(b, srv)
	_, js := natstest.ConnectURL(b, srv.URL())
	_, insert := natstest.ConnectURL(b, srv.URL())

	begun := make([]time.Time, b.N)
	started := make(chan time.Duration, b.N)
	ready := make(chan bool, 1)

	cfg := (&bundle{js: js}).config(b, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
	run(b, js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		started <- time.Since(begun[job.Args.N])

		return nil
	})
	receive(b, ready, "the worker to be ready")

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	b.ResetTimer()

	for i := range b.N {
		<-tick.C

		begun[i] = time.Now()
		if _, err := insert.Publish(b.Context(), "jobs.x", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			b.Fatal(err)
		}
	}

	waits := make([]time.Duration, b.N)
	for i := range waits {
		waits[i] = receive(b, started, "a start")
	}

	b.StopTimer()
	slices.Sort(waits)
	b.ReportMetric(float64(waits[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(waits[b.N*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// cpu is the processor time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()

	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}

	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
