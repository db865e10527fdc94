package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

// open runs a server with a bucket, for one example.
func open() (f *kvlock.Flight, end func()) { return openWith(kvlock.Config{}) }

func openWith(cfg kvlock.Config) (f *kvlock.Flight, end func()) {
	js, stop := serve("menus")
	cfg.Bucket, cfg.Instance = "menus", "kitchen-1"
	f, err := kvlock.NewFlight(context.Background(), js, cfg)
	if err != nil {
		log.Fatal(err)
	}
	return f, func() {
		f.Close()
		stop()
	}
}

// serve runs a server with a bucket.
func serve(bucket string) (js jetstream.JetStream, stop func()) {
	srv, err := natsrun.Start(natsrun.Config{})
	if err != nil {
		log.Fatal(err)
	}
	nc, err := srv.Connect()
	if err != nil {
		log.Fatal(err)
	}
	if js, err = jetstream.New(nc); err != nil {
		log.Fatal(err)
	}
	if err := kvlock.CreateBucket(context.Background(), js, kvlock.BucketConfig{Bucket: bucket}); err != nil {
		log.Fatal(err)
	}
	return js, func() {
		nc.Close()
		srv.Stop()
	}
}

// A Flight runs a function once for all who ask, and keeps what it returns.
func Example_flight() {
	f, end := open()
	defer end()
	ctx := context.Background()
	soup := func(context.Context) ([]byte, error) {
		fmt.Println("cooking")
		return []byte("soup"), nil
	}
	for range 2 {
		r, err := f.Do(ctx, "today", soup, kvlock.DoOptions{TTL: 24 * time.Hour})
		if err != nil {
			log.Fatal(err)
		}
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
	claim, err := f.Begin(ctx, "today", kvlock.BeginOptions{Handoff: true, TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	message := claim.Ref() // travels in a job

	claim, err = f.Resume(ctx, "today", message, kvlock.ResumeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	held, stop := claim.Keep(ctx, 0) // renews while the work goes on
	defer stop()
	slot, err := claim.Complete(held, []byte("soup"), time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(slot.State, slot.Attempt, slot.TTL)
	// Output: done 2 1h0m0s
}

// A key that is in use says by whom, and what it holds.
func Example_takenError() {
	f, end := open()
	defer end()
	ctx := context.Background()
	if _, err := f.Begin(ctx, "today", kvlock.BeginOptions{}); err != nil {
		log.Fatal(err)
	}
	_, err := f.Begin(ctx, "today", kvlock.BeginOptions{})
	if taken, ok := errors.AsType[*kvlock.TakenError](err); ok {
		fmt.Println(taken.Slot.Key, "is", taken.Slot.State, "by", taken.Slot.Owner)
	}
	// Output: today is pending by kitchen-1
}

// Many keys are read in one round trip; those that are absent can be claimed as they were read.
func Example_slot() {
	f, end := open()
	defer end()
	ctx := context.Background()
	slots, err := f.GetMany(ctx, []string{"monday", "tuesday"})
	if err != nil {
		log.Fatal(err)
	}
	for _, slot := range slots {
		if slot.State != kvlock.Absent {
			continue
		}
		claim, err := f.Begin(ctx, slot.Key, kvlock.BeginOptions{Seen: slot})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("claimed", claim.Key())
	}
	// Output:
	// claimed monday
	// claimed tuesday
}

// A Watcher tells how keys are, and how they change.
func Example_watcher() {
	f, end := open()
	defer end()
	ctx := context.Background()
	claim, err := f.Begin(ctx, "today", kvlock.BeginOptions{})
	if err != nil {
		log.Fatal(err)
	}
	w, err := f.Watch("today")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for {
		slot, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(slot.State)
		if slot.State == kvlock.Done {
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

// What a function does elsewhere is protected by its fencing token: the far side refuses one that is smaller than it
// has seen.
func Example_token() {
	f, end := open()
	defer end()
	ctx := context.Background()
	first, err := f.Begin(ctx, "today", kvlock.BeginOptions{})
	if err != nil {
		log.Fatal(err)
	}
	second, err := f.Resume(ctx, "today", first.Ref(), kvlock.ResumeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Token().Compare(second.Token()))
	fmt.Println(errors.Is(first.Renew(ctx, 0), kvlock.ErrLost))
	// Output:
	// -1
	// true
}

// A function that fails or panics is an error to all who wait, and is run again by the next who asks.
func Example_panicError() {
	f, end := open()
	defer end()
	ctx := context.Background()
	_, err := f.Do(ctx, "today", func(context.Context) ([]byte, error) { panic("oven on fire") }, kvlock.DoOptions{})
	if p, ok := errors.AsType[*kvlock.PanicError](err); ok {
		fmt.Println(p)
	}
	// Output: kvlock: function for "today" panicked: oven on fire
}

// A failure may be kept, so that nobody tries again for a while.
func Example_failedError() {
	f, end := open()
	defer end()
	ctx := context.Background()
	claim, err := f.Begin(ctx, "today", kvlock.BeginOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := claim.Fail(ctx, "no ingredients", time.Minute); err != nil {
		log.Fatal(err)
	}
	_, err = f.Do(ctx, "today", nil, kvlock.DoOptions{})
	if failed, ok := errors.AsType[*kvlock.FailedError](err); ok {
		fmt.Println(failed.Reason)
	}
	// Output: no ingredients
}

// An administrator makes the bucket from the same settings that NewFlight checks.
func Example_bucketConfig() {
	sc := kvlock.StreamConfig(kvlock.BucketConfig{Bucket: "menus", Replicas: 3})
	fmt.Println(sc.Name, sc.Replicas, sc.AllowMsgTTL, sc.RePublish.Destination)
	// Output: KV_menus 3 true rp.menus.>
}
