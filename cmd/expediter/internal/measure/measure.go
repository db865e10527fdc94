// Package measure times the work of the libraries and services on existing servers: locks, results that are computed once, jobs,
// requests for places and notifications.
package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Row is the result of one kind of operation.
type Row struct {
	// Part is the part of the project, one of Parts.
	Part string `json:"part"`

	// Operation is the operation that was repeated.
	Operation string `json:"operation"`

	// Callers is the number of concurrent callers.
	Callers int `json:"callers"`

	// Count is the number of operations.
	Count int `json:"count"`

	// PerSecond is the number of operations per second.
	PerSecond float64 `json:"per_second"`

	// P50 and P99 are percentiles of the time of an operation, in microseconds.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`

	// CPU is the CPU time of the measuring process, its services included, for each operation, in microseconds; 0 when the
	// system does not tell.
	CPU float64 `json:"cpu_us"`
}

// operation is one kind of operation. The calls are numbered from 1.
type operation struct {
	name    string
	callers int
	do      func(ctx context.Context, n int64) error
}

// perCaller bounds the times that are kept of one caller. Later times replace the first ones.
const perCaller = 1 << 16

// run repeats an operation for a while, at least once for each caller, and ends with the first error.
func (o operation) run(ctx context.Context, part string, lasts time.Duration) (Row, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	took := make([][]time.Duration, o.callers)
	began, spent := time.Now(), processorTime()
	var all sync.WaitGroup
	for caller := range took {
		all.Go(func() {
			for i := 0; (i == 0 || time.Since(began) < lasts) && ctx.Err() == nil; i++ {
				start := time.Now()
				if err := o.do(ctx, next.Add(1)); err != nil {
					cancel(fmt.Errorf("%s: %s: %w", part, o.name, err))
					return
				}
				done.Add(1)
				if i < perCaller {
					took[caller] = append(took[caller], time.Since(start))
				} else {
					took[caller][i%perCaller] = time.Since(start)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return Row{}, err
	}
	elapsed, n := time.Since(began), done.Load()
	times := slices.Sorted(slices.Values(slices.Concat(took...)))
	return Row{
		Part: part, Operation: o.name, Callers: o.callers, Count: int(n), PerSecond: float64(n) / elapsed.Seconds(),
		P50: micros(times[len(times)/2]), P99: micros(times[len(times)*99/100]), CPU: micros(processorTime()-spent) / float64(n),
	}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
