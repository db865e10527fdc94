package test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	producers = 32
	slots     = 100
)

// BenchmarkJobs inserts no-op jobs from 32 producers, one at a time each, and works them in
// 100 slots until the server has confirmed each. "raw" is what nats.go alone needs for
// that, with message IDs; "worker" works jobs that nats.go inserted, the others those of a
// Client: plain, unique, unique and recorded, and inserted 100 at a time; "priorities" is
// "worker" with handlers of two more priorities, which get no jobs. TCP loopback, R1 file,
// sync_interval 1s; CPU is that of clients and server.
//
//	go test -run '^$' -bench Jobs -benchtime 50000x -count 5 .
func BenchmarkJobs(b *testing.B) {
	b.Run("raw", func(b *testing.B) { benchInserts(b, insertRaw, workRaw) })
	b.Run("worker", func(b *testing.B) { benchInserts(b, insertRaw, workWorker) })
	b.Run("priorities", func(b *testing.B) { benchInserts(b, insertRaw, workPriorities) })
	b.Run("plain", func(b *testing.B) { benchInserts(b, insertOne(nil), workWorker) })
	b.Run("unique", func(b *testing.B) { benchInserts(b, insertOne(&worker.Unique{}), workWorker) })
	b.Run("kept", func(b *testing.B) { benchInserts(b, insertOne(&worker.Unique{Keep: time.Hour}), workWorker) })
	b.Run("many", func(b *testing.B) { benchInserts(b, insertMany(nil), workWorker) })
	b.Run("many-unique", func(b *testing.B) { benchInserts(b, insertMany(&worker.Unique{}), workWorker) })
}

// inserter inserts the jobs from one number up to another.
type inserter func(b *testing.B, js jetstream.JetStream) (insert func(from, to int) error, size int)

func insertRaw(b *testing.B, js jetstream.JetStream) (func(from, to int) error, int) {
	b.Helper()
	return func(i, _ int) error {
		id := strconv.Itoa(i)
		_, err := js.Publish(b.Context(), "jobs.k."+id, []byte(`{"n":1}`), jetstream.WithMsgID(id))
		return err
	}, 1
}

func benchJob(unique *worker.Unique, i int) worker.NewJob {
	job := worker.NewJob{Args: order{N: 1}, Subject: "jobs.k"}
	if unique == nil {
		job.Subject += "." + strconv.Itoa(i)
	} else {
		job.Unique = &worker.Unique{Keep: unique.Keep, Key: strconv.Itoa(i)}
	}
	return job
}

func insertOne(unique *worker.Unique) inserter {
	return func(b *testing.B, js jetstream.JetStream) (func(from, to int) error, int) {
		b.Helper()

		c := client(b, js)
		return func(i, _ int) error {
			_, err := c.Insert(b.Context(), benchJob(unique, i))
			return err
		}, 1
	}
}

func insertMany(unique *worker.Unique) inserter {
	return func(b *testing.B, js jetstream.JetStream) (func(from, to int) error, int) {
		b.Helper()

		const size = 100

		c := client(b, js)
		return func(from, to int) error {
			jobs := make([]worker.NewJob, 0, size)
			for i := from; i < to; i++ {
				jobs = append(jobs, benchJob(unique, i))
			}

			_, err := c.InsertMany(b.Context(), jobs)
			return err
		}, size
	}
}

func benchInserts(b *testing.B, how inserter, work func(b *testing.B, js jetstream.JetStream, done func())) {
	b.Helper()

	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen = true })
	set := keyed(b, srv)
	_, js := natstest.ConnectURL(b, srv.URL())
	_, jsInsert := natstest.ConnectURL(b, srv.URL())
	insert, size := how(b, jsInsert)

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
			for i := p * size; i < b.N; i += producers * size {
				if err := insert(i, min(i+size, b.N)); err != nil {
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

	check.Same(b, "jobs left", set.queued(b), 0)
}

// queued is the number of jobs in the stream, records left aside.
func (b *bundle) queued(t testing.TB) int {
	t.Helper()

	s, err := b.js.Stream(t.Context(), stream)
	check.OK(t, err)

	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(pattern))
	check.OK(t, err)
	return len(info.State.Subjects)
}

func workRaw(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()
	consumeRaw(b, js, done, func(jetstream.Msg) error { return nil })
}

func consumeRaw(b *testing.B, js jetstream.JetStream, done func(), handle func(jetstream.Msg) error) {
	b.Helper()

	consumer, err := js.CreateConsumer(b.Context(), stream, jetstream.ConsumerConfig{Durable: durable, FilterSubject: pattern, MaxAckPending: -1})
	check.OK(b, err)

	jobs := make(chan jetstream.Msg)

	var group sync.WaitGroup
	for range slots {
		group.Go(func() {
			for msg := range jobs {
				check.Is(b, handle(msg), nil)

				if err := msg.DoubleAck(context.Background()); err != nil { //nolint:usetesting // outlives the test by the clean-up
					b.Error(err)
				}

				done()
			}
		})
	}

	consuming, err := consumer.Consume(func(msg jetstream.Msg) { jobs <- msg }, jetstream.PullMaxMessages(slots))
	check.OK(b, err)

	b.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
		close(jobs)
		group.Wait()
	})
}

func workWorker(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()
	consumeWorker(b, js, done, func(*worker.Config) {}, func(context.Context, *worker.Job[order]) error { return nil })
}

func consumeWorker(b *testing.B, js jetstream.JetStream, done func(), mutate func(*worker.Config), h worker.Handler[order]) {
	b.Helper()

	cfg := (&bundle{js: js}).config(b, mutate, func(c *worker.Config) {
		c.Concurrency = slots
		c.Hooks.Settled = func(worker.Settlement) { done() }
	})
	run(b, js, cfg, worker.Policy{}, h)
}

func workPriorities(b *testing.B, js jetstream.JetStream, done func()) {
	b.Helper()

	cfg := (&bundle{js: js}).config(b, func(c *worker.Config) {
		c.Concurrency = slots
		c.Hooks.Settled = func(worker.Settlement) { done() }
	})

	w, err := worker.New(js, cfg)
	check.OK(b, err)

	for of, p := range map[string]worker.Priority{"jobs.k.>": worker.PriorityNormal, "jobs.high.>": worker.PriorityHigh, "jobs.low.>": worker.PriorityLow} {
		check.OK(b, worker.Handle(w, of, worker.Policy{Priority: p}, func(context.Context, *worker.Job[order]) error { return nil }))
	}

	start(b, w)
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
		check.OK(b, check.Err(insert.Publish(b.Context(), "jobs.x", fmt.Appendf(nil, `{"n":%d}`, i))))
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
	check.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
