//go:build ignore

// A function whose result is computed once, for all processes that ask for it.
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
	must(js, kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: "results"}))
	results := must(flight.New(ctx, js, flight.Config{Bucket: "results"}))
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
// soup computed
// soup cached
