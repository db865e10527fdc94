//go:build ignore

// Order adds the job to cook a dish, now or at fixed times:
//
//	order soup
//	order bread "0 6 * * *"
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

type Dish struct {
	Name string `json:"name"`
}

func main() {
	ctx, name := context.Background(), os.Args[1]
	js := must(jetstream.New(must(nats.Connect(nats.DefaultURL))))
	client := must(worker.NewClient(js, worker.ClientConfig{Stream: "KITCHEN"}))
	if len(os.Args) > 2 {
		must(client.Schedule(ctx, worker.Periodic{Args: Dish{name}, Cron: os.Args[2], Name: name, Subject: "kitchen.dish"}))
		fmt.Println("scheduled", name)
		return
	}
	receipt := must(client.Insert(ctx, worker.NewJob{
		Args: Dish{name}, Subject: "kitchen.dish", Unique: &worker.Unique{Key: name, Keep: time.Hour},
	}))
	if receipt.Duplicate {
		fmt.Println(name, "was ordered before, and is", receipt.State)
		return
	}
	fmt.Println("ordered", name)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
