package flight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// ProcessRun is a job of a geoprocessing service.
type ProcessRun struct {
	JobID  string
	Inputs map[string]any
}

// ProcessResult is what comes of it.
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
	if err != nil {
		log.Fatal(err)
	}
	operation := func(_ context.Context, job ProcessRun) (ProcessResult, error) {
		fmt.Println("executing", job.JobID)
		return ProcessResult{Area: 31416}, nil
	}
	job := ProcessRun{JobID: "job-20251114-abc123", Inputs: map[string]any{"distance": 100}}
	for range 2 { // it is delivered twice
		result, info, err := executor.Do(ctx, job, operation)
		if err != nil {
			log.Fatal(err)
		}
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

// A failure is not kept: the job is executed again when it is delivered again.
func Example_cacheOfAFailure() {
	f, end := open()
	defer end()
	ctx := context.Background()
	executor, err := flight.NewCache[ProcessRun, ProcessResult](f, flight.CacheConfig[ProcessRun]{Process: "buffer"})
	if err != nil {
		log.Fatal(err)
	}
	attempt := 0
	operation := func(context.Context, ProcessRun) (ProcessResult, error) {
		attempt++
		if attempt == 1 {
			return ProcessResult{}, errors.New("out of memory")
		}
		return ProcessResult{Area: 1}, nil
	}
	for range 3 {
		_, info, err := executor.Do(ctx, ProcessRun{}, operation)
		fmt.Println(info.Outcome, err)
	}
	// Output:
	// Outcome(0) out of memory
	// computed <nil>
	// cached <nil>
}

// Each process has a lifetime of its own for its results, and its keys can be purged by its name.
func Example_cacheConfig() {
	f, end := open()
	defer end()
	ctx := context.Background()
	for process, keep := range map[string]time.Duration{"buffer": 7 * 24 * time.Hour, "traffic": time.Hour} {
		cache, err := flight.NewCache[string, int](f, flight.CacheConfig[string]{
			Process: process, Version: "2", Options: flight.DoOptions{TTL: keep},
		})
		if err != nil {
			log.Fatal(err)
		}
		if _, _, err := cache.Do(ctx, "x", func(context.Context, string) (int, error) { return 1, nil }); err != nil {
			log.Fatal(err)
		}
		if process == "traffic" {
			_, slot, err := cache.Get(ctx, "x")
			fmt.Println(slot.State, slot.TTL, err)
		}
	}
	n, err := f.Purge(ctx, "traffic")
	fmt.Println(n, err)
	// Output:
	// done 1h0m0s <nil>
	// 1 <nil>
}

// Many keys are computed by one call, for all that are missing. Those that fail do not harm the others.
func Example_keysError() {
	f, end := open()
	defer end()
	ctx := context.Background()
	if _, err := f.Do(ctx, "soup", func(context.Context) ([]byte, error) { return []byte("leek"), nil }, flight.DoOptions{}); err != nil {
		log.Fatal(err)
	}
	results, err := f.DoMany(ctx, []string{"salad", "soup", "trifle"}, func(_ context.Context, missing []string) (map[string][]byte, error) {
		fmt.Println("asked for", missing)
		return map[string][]byte{"salad": []byte("beet")}, flight.KeysError{"trifle": errors.New("no custard")}
	}, flight.DoOptions{})
	failed, _ := errors.AsType[flight.KeysError](err)
	for _, r := range results {
		if err := failed[r.Key]; err != nil {
			fmt.Println(r.Key, "failed:", err)
			continue
		}
		fmt.Println(r.Key, r.Outcome, string(r.Value))
	}
	// Output:
	// asked for [salad trifle]
	// salad computed beet
	// soup cached leek
	// trifle failed: no custard
}

// A scan counts the entries of the bucket, and the process its own work. The server removes expired entries.
func Example_survey() {
	f, end := open()
	defer end()
	ctx := context.Background()
	for _, process := range []string{"buffer", "union"} {
		executor, err := flight.NewCache[ProcessRun, ProcessResult](f, flight.CacheConfig[ProcessRun]{
			Process: process, Options: flight.DoOptions{TTL: map[string]time.Duration{"buffer": 7 * 24 * time.Hour, "union": time.Hour}[process]},
		})
		if err != nil {
			log.Fatal(err)
		}
		for range 3 {
			if _, _, err := executor.Do(ctx, ProcessRun{}, func(context.Context, ProcessRun) (ProcessResult, error) {
				return ProcessResult{Area: 1}, nil
			}); err != nil {
				log.Fatal(err)
			}
		}
	}
	stats, err := f.Survey(ctx, "") // or "buffer", for one process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Total entries:", stats.Done)
	fmt.Println("Expiring in 24h:", stats.Expiring)
	fmt.Println("Total size:", stats.Bytes > 0)
	own := f.Stats()
	fmt.Println("Hits:", own.Hits, "misses:", own.Misses, "computed:", own.Computed)
	// Output:
	// Total entries: 2
	// Expiring in 24h: 1
	// Total size: true
	// Hits: 4 misses: 2 computed: 2
}
