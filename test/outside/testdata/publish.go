//go:build ignore

// An event is published once, however often its source tells it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

func main() {
	ctx := context.Background()
	srv := must(natsrun.Start(natsrun.Config{})) // an embedded server; nats.Connect(url) connects to another
	defer srv.Stop()
	js := must(jetstream.New(must(srv.Connect())))
	for _, stream := range contracts.Streams(contracts.AssetOptions{MaxBytes: 1 << 30}) {
		must(js.CreateOrUpdateStream(ctx, stream))
	}
	publisher := must(contracts.NewPublisher(js, contracts.PublisherConfig{Source: "/orders"}))
	event := contracts.Event{EventID: "order-7", EventType: "ORDER_PLACED", AggregateType: "ORDER", UserID: "ada"}
	for range 2 {
		published := must(publisher.Publish(ctx, event))
		fmt.Println("at", published.Sequence, "known before:", published.Duplicate)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Output:
// at 1 known before: false
// at 1 known before: true
