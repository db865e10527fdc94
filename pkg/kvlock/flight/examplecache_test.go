package flight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// ProcessRun is a job of a geoprocessing service.
type ProcessRun struct {
	JobID  string
	Inputs map[string]any
}

// ProcessResult is the result of a process.
type ProcessResult struct {
	Area float64
}

// A work has one key, however its inputs are written.
func Example_work() {
	for _, inputs := range []string{
		`{"distance": 100, "unit": "m"}`,
		`{"unit":"m","distance":1e2}`,
		`{"distance": 100.5, "unit": "m"}`,
	} {
		key, err := flight.Work{Process: "buffer", Version: "1", Inputs: json.RawMessage(inputs)}.Key()
		fmt.Println(key[:16], len(key), err)
	}
	_, err := flight.Work{Process: "buffer", Inputs: json.RawMessage(`{"distance": 1, "distance": 2}`)}.Key()
	fmt.Println(errors.Is(err, flight.ErrInvalidInputs))
	// Output:
	// f5597cc4b078fcfe 64 <nil>
	// f5597cc4b078fcfe 64 <nil>
	// a56df978b35921f8 64 <nil>
	// true
}

// A Cache executes each job once, though workers crash and jobs are delivered again, and remembers the result. Beside the
// result it says whether it was cached, under which key, for which job it was computed, and how long that took now.
func Example_cache() {
	f, end := open()
	defer end()
	ctx := context.Background()
	executor, err := flight.NewCache[ProcessRun, ProcessResult](f, flight.CacheConfig[ProcessRun]{
		Process: "buffer",
		Scope:   flight.ByJob, // ByInputs shares results between jobs
		JobID:   func(job ProcessRun) string { return job.JobID },
		Inputs:  func(job ProcessRun) any { return job.Inputs },
		Options: flight.DoOptions{TTL: 14 * 24 * time.Hour}, // of this process; 7 days if nothing is said
	})
	must(err)
	operation := func(_ context.Context, job ProcessRun) (ProcessResult, error) {
		fmt.Println("executing", job.JobID)
		return ProcessResult{Area: 31416}, nil
	}
	job := ProcessRun{JobID: "job-20251114-abc123", Inputs: map[string]any{"distance": 100}}
	for range 2 { // it is delivered twice
		result, info, err := executor.Do(ctx, job, operation)
		must(err)
		fmt.Println(result.Area, info.Outcome, info.Outcome == flight.Cached, info.Job, info.Owner)
		fmt.Println(strings.HasPrefix(info.Key, "buffer."), len(info.Key), info.Elapsed > 0)
	}
	// Output:
	// executing job-20251114-abc123
	// 31416 computed false job-20251114-abc123 kitchen-1
	// true 71 true
	// 31416 cached true job-20251114-abc123 kitchen-1
	// true 71 true
}

// keep stores a result.
func keep(f *flight.Flight, key, value string, ttl time.Duration) {
	fn := func(context.Context) ([]byte, error) { return []byte(value), nil }
	if _, err := f.Do(context.Background(), key, fn, flight.DoOptions{TTL: ttl}); err != nil {
		log.Fatal(err)
	}
}

// Results that are in memory cost no round trip, and yet are never older than 3 seconds.
func Example_memoryConfig() {
	f, end := openWith(flight.Config{Memory: flight.MemoryConfig{MaxBytes: 64 << 20}})
	defer end()
	ctx := context.Background()
	keep(f, "today", "soup", time.Hour)
	for range 1000 {
		if _, err := f.Get(ctx, "today"); err != nil {
			log.Fatal(err)
		}
	}
	s := f.Stats()
	fmt.Println(s.Computed, "computed,", s.Memory.Hits, "from memory,", s.Hits, "from the bucket")

	must(f.Invalidate(ctx, "today"))
	entry, err := f.Get(ctx, "today")
	fmt.Println(entry.State, err)
	// Output:
	// 1 computed, 1000 from memory, 0 from the bucket
	// absent <nil>
}

// List shows the requests in flight, their owners, and their attempts.
func ExampleFlight_List() {
	f, end := open()
	defer end()
	ctx := context.Background()
	keep(f, "menus.today", "soup", time.Hour)
	if _, err := f.Begin(ctx, "menus.tomorrow", flight.BeginOptions{TTL: 30 * time.Second}); err != nil {
		log.Fatal(err)
	}
	for entry, err := range f.List(ctx, "menus") {
		switch {
		case errors.Is(err, kvlock.ErrVersion):
			fmt.Println(entry.Key, "is of a newer version")
		case err != nil:
			log.Fatal(err)
		case entry.State == flight.Pending:
			fmt.Println(entry.Key, entry.State, entry.Owner, entry.Attempt, entry.Age() < entry.TTL)
		}
	}
	// Output:
	// menus.tomorrow pending kitchen-1 1 true
}
