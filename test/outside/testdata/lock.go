//go:build ignore

// A lock that one process holds at a time. The store that it guards refuses an overtaken holder by its token.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

func main() {
	ctx := context.Background()
	srv := must(natsrun.Start(natsrun.Config{})) // an embedded server; nats.Connect(url) connects to another
	defer srv.Stop()
	js := must(jetstream.New(must(srv.Connect())))
	must(js, kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: "locks"}))
	locker := must(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks"}))
	guard := must(kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: "locks"}))
	must(locker, locker.Do(ctx, "oven", func(ctx context.Context, token kvlock.Token) error {
		fmt.Println("the oven is ours")
		return guard.Put(ctx, "menu", token, []byte("soup"))
	}))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Output: the oven is ours
