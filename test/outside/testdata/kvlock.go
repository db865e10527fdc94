//go:build ignore

// A lock that one process holds at a time, whose store refuses an overtaken holder by its token; and a function whose result is computed
// once, for all processes that ask for it.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

func main() {
	ctx := context.Background()
	srv := must(natsrun.Start(natsrun.Config{})) // an embedded server; nats.Connect(url) connects to another
	defer srv.Stop()
	js := must(jetstream.New(must(srv.Connect())))
	must(js, kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: "kitchen"}))

	locker := must(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "kitchen"}))
	guard := must(kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: "kitchen"}))
	must(locker, locker.Do(ctx, "oven", func(ctx context.Context, token kvlock.Token) error {
		fmt.Println("the oven is ours")
		return guard.Put(ctx, "menu", token, []byte("soup"))
	}))

	results := must(flight.New(ctx, js, flight.Config{Bucket: "kitchen"}))
	cook := func(context.Context) ([]byte, error) { return []byte("soup"), nil }
	for range 2 {
		result := must(results.Do(ctx, "today", cook, flight.DoOptions{TTL: time.Hour}))
		fmt.Println(string(result.Value), result.Outcome)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Output:
// the oven is ours
// soup computed
// soup cached
