package worker_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

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
		c.Concurrency = 100
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
		run(b, js, cfg, worker.Policy{Limits: limits}, complete)
	}

	receive(b, all, "all jobs")
	b.StopTimer()

	bucket := check.Must(set.js.Stream(b.Context(), "KV_jobs"))(b)

	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/n, "cpu-µs/job")
	b.ReportMetric(float64(bucket.CachedInfo().State.LastSeq)/n, "writes/job")
	b.ReportMetric(float64(back.Load())/n, "given-back/job")
	b.ReportMetric(0, "ns/op")
}

// cpu is the processor time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()

	var use syscall.Rusage
	check.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
