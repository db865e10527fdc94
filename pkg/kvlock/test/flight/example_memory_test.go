package flight_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// keep stores a result.
func keep(f *flight.Flight, key, value string, ttl time.Duration) {
	fn := func(context.Context) ([]byte, error) { return []byte(value), nil }
	if _, err := f.Do(context.Background(), key, fn, flight.DoOptions{TTL: ttl}); err != nil {
		log.Fatal(err)
	}
}

// Results that are in memory cost no round trip, and yet are never older than 3 seconds.
func Example_memoryConfig() {
	f, end := openWith(flight.Config{Memory: flight.MemoryConfig{Eviction: flight.LFU, MaxBytes: 64 << 20}})
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

	if err := f.Invalidate(ctx, "today"); err != nil {
		log.Fatal(err)
	}
	slot, err := f.Get(ctx, "today")
	fmt.Println(slot.State, err)
	// Output:
	// 1 computed, 1000 from memory, 0 from the bucket
	// absent <nil>
}

// All that was computed from an old state of the world goes at once, in every process.
func ExampleFlight_Purge() {
	f, end := open()
	defer end()
	for _, key := range []string{"berlin.today", "berlin.tomorrow", "paris.today"} {
		keep(f, key, "soup", time.Hour)
	}
	fmt.Println(f.Purge(context.Background(), "berlin"))
	for slot, err := range f.List(context.Background(), "") {
		fmt.Println(slot.Key, slot.State, err)
	}
	// Output:
	// 2 <nil>
	// paris.today done <nil>
}

// Which requests are in flight, who works on them, and how often they were tried.
func ExampleFlight_List() {
	f, end := open()
	defer end()
	ctx := context.Background()
	keep(f, "menus.today", "soup", time.Hour)
	if _, err := f.Begin(ctx, "menus.tomorrow", flight.BeginOptions{TTL: 30 * time.Second}); err != nil {
		log.Fatal(err)
	}
	for slot, err := range f.List(ctx, "menus") {
		switch {
		case errors.Is(err, kvlock.ErrVersion):
			fmt.Println(slot.Key, "is of a newer version")
		case err != nil:
			log.Fatal(err)
		case slot.State == flight.Pending:
			fmt.Println(slot.Key, slot.State, slot.Owner, slot.Attempt, slot.Age() < slot.TTL)
		}
	}
	// Output:
	// menus.tomorrow pending kitchen-1 1 true
}

// The statistics of a bucket: one round trip for what the server counts, a scan for what it does not.
func ExampleFlight_Survey() {
	f, end := open()
	defer end()
	keep(f, "today", "soup", time.Hour)
	keep(f, "week", "soups", 7*24*time.Hour)
	u, err := f.Usage(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(u.Entries, "entries,", u.Bytes > 0)
	s, err := f.Survey(context.Background(), "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Done, "results,", s.Pending, "pending,", s.Expiring, "expiring within 24 hours")
	// Output:
	// 2 entries, true
	// 2 results, 0 pending, 1 expiring within 24 hours
}

// After a start the memory is loaded with what the bucket holds.
func ExampleFlight_Warm() {
	f, end := openWith(flight.Config{Memory: flight.MemoryConfig{MaxBytes: 64 << 20}})
	defer end()
	keep(f, "menus.today", "soup", time.Hour)
	keep(f, "menus.tomorrow", "stew", time.Hour)
	fmt.Println(f.Warm(context.Background(), "menus"))
	// Output:
	// 2 <nil>
}
