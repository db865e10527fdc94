//go:build ignore

// Cook works the dishes that are ordered: in two steps, of which the second needs the only oven.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

type Dish struct {
	Name string `json:"name"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	js := must(jetstream.New(must(nats.Connect(nats.DefaultURL))))
	locker := must(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks", TTL: 5 * time.Second}))
	w := must(worker.New(js, worker.Config{AckWait: 5 * time.Second, AutoCreate: true, Consumer: "kitchen", Stream: "KITCHEN"}))
	cook := func(ctx context.Context, job *worker.Job[Dish]) error {
		chopped, err := step.Run(ctx, job, "chop", func(context.Context) (string, error) {
			fmt.Println("chop", job.Args.Name)
			return "chopped " + job.Args.Name, nil
		})
		if err != nil {
			return err // the job is tried again, after a while
		}
		return step.Do(ctx, job, "bake", func(ctx context.Context) error {
			return locker.Do(ctx, "oven", func(ctx context.Context, _ kvlock.Token) error {
				fmt.Println("bake", chopped)
				time.Sleep(5 * time.Second)
				fmt.Println("ready", job.Args.Name)
				return ctx.Err() // the lock is lost when the server cannot be reached for long
			})
		})
	}
	must(w, worker.Handle(w, "kitchen.dish.>", worker.Policy{}, cook))
	must(w, w.Run(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
