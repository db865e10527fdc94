package flight_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
)

// open runs a server with a bucket, for one example.
func open() (f *flight.Flight, end func()) { return openWith(flight.Config{}) }

func openWith(cfg flight.Config) (f *flight.Flight, end func()) {
	js, stop := testbed.Serve("menus")
	cfg.Bucket, cfg.Instance = "menus", "kitchen-1"
	f, err := flight.New(context.Background(), js, cfg)
	must(err)
	return f, func() {
		f.Close()
		stop()
	}
}

// must ends an example that failed.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A Flight runs a function once for all callers, and keeps the result.
func Example_flight() {
	f, end := open()
	defer end()
	ctx := context.Background()
	soup := func(context.Context) ([]byte, error) {
		fmt.Println("cooking")
		return []byte("soup"), nil
	}
	for range 2 {
		r, err := f.Do(ctx, "today", soup, flight.DoOptions{TTL: 24 * time.Hour})
		must(err)
		fmt.Println(string(r.Value), r.Outcome, r.Owner)
	}
	// Output:
	// cooking
	// soup computed kitchen-1
	// soup cached kitchen-1
}

// Work that begins in one process and ends in another carries the reference of its claim.
func Example_claim() {
	f, end := open()
	defer end()
	ctx := context.Background()
	claim, err := f.Begin(ctx, "today", flight.BeginOptions{HandOff: true, TTL: time.Minute})
	must(err)
	message := claim.Ref() // travels in a job

	claim, err = f.Resume(ctx, "today", message, flight.ResumeOptions{})
	must(err)
	held, stop := claim.AutoRenew(ctx, 0) // renews while the work goes on
	defer stop()
	entry, err := claim.Complete(held, []byte("soup"), time.Hour)
	must(err)
	fmt.Println(entry.State, entry.Attempt, entry.TTL)
	// Output: done 2 1h0m0s
}

// Many keys are read in one round trip; those that are absent can be claimed as they were read.
func Example_entry() {
	f, end := open()
	defer end()
	ctx := context.Background()
	entries, err := f.GetMany(ctx, []string{"monday", "tuesday"})
	must(err)
	for _, entry := range entries {
		if entry.State != flight.Absent {
			continue
		}
		claim, err := f.Begin(ctx, entry.Key, flight.BeginOptions{Seen: entry})
		must(err)
		fmt.Println("claimed", claim.Key())
	}
	// Output:
	// claimed monday
	// claimed tuesday
}

// A Watcher returns the state of keys, and their changes.
func Example_watcher() {
	f, end := open()
	defer end()
	ctx := context.Background()
	claim, err := f.Begin(ctx, "today", flight.BeginOptions{})
	must(err)
	w, err := f.Watch("today")
	must(err)
	defer w.Close()
	for {
		entry, err := w.Next(ctx)
		must(err)
		fmt.Println(entry.State)
		if entry.State == flight.Done {
			return
		}
		if _, err := claim.Complete(ctx, []byte("soup"), 0); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// pending
	// done
}

// A failure may be kept, so that no caller tries again for a while.
func Example_failedError() {
	f, end := open()
	defer end()
	ctx := context.Background()
	claim, err := f.Begin(ctx, "today", flight.BeginOptions{})
	must(err)
	must(claim.Fail(ctx, "no ingredients", time.Minute))
	_, err = f.Do(ctx, "today", nil, flight.DoOptions{})
	if failed, ok := errors.AsType[*flight.FailedError](err); ok {
		fmt.Println(failed.Reason)
	}
	// Output: no ingredients
}
