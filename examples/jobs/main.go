// Command jobs runs the recipes of docs/jobs.md on an embedded server, and prints what they do.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// Mail is the payload of jobs.mail.>.
type Mail struct {
	To   string `json:"to"`
	Text string `json:"text,omitempty"`
}

// Order is the payload of jobs.order.
type Order struct {
	ID    string   `json:"id"`
	Items []string `json:"items"`
}

// kitchen has what the handlers use.
type kitchen struct {
	client  *worker.Client
	results jetstream.KeyValue
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	srv, err := natsrun.Start(natsrun.Config{})
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	k, err := open(ctx, js)
	if err != nil {
		return err
	}
	if err := k.insert(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worked := make(chan error, 1)
	go func() {
		err := k.work(ctx, js)
		stop(err)
		worked <- err
	}()
	err = errors.Join(k.look(ctx), k.replay(ctx, js))
	stop(nil) // running handlers end, and no job is lost
	return errors.Join(err, <-worked)
}

// open creates the stream of the jobs and the bucket of their results: an operator does that on a server of production.
func open(ctx context.Context, js jetstream.JetStream) (*kitchen, error) {
	if err := worker.CreateStream(ctx, js, "JOBS", "jobs.>"); err != nil {
		return nil, err
	}
	results, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "results", TTL: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	client, err := worker.NewClient(js, worker.ClientConfig{Stream: "JOBS"})
	return &kitchen{client, results}, err
}

func (k *kitchen) insert(ctx context.Context) error {
	return errors.Join(k.cron(ctx), k.unique(ctx), k.later(ctx), k.flaky(ctx), k.order(ctx))
}

// cron has the server insert a job by itself. Each process may call it at each start.
func (k *kitchen) cron(ctx context.Context) error {
	_, err := k.client.Schedule(ctx, worker.Periodic{
		Args: Mail{To: "team"}, Cron: "30 9 * * 1-5", Name: "morning", Subject: "jobs.mail", TimeZone: "Europe/Berlin",
	})
	return err
}

// unique inserts jobs of which there is one at a time: by their arguments, and in each hour.
func (k *kitchen) unique(ctx context.Context) error {
	for range 2 {
		mail := Mail{To: "ada", Text: "Your table is ready."}
		data, _ := json.Marshal(mail)
		receipt, err := k.client.Insert(ctx, worker.NewJob{
			Args: mail, Subject: "jobs.mail", Unique: &worker.Unique{Key: fmt.Sprintf("%x", sha256.Sum256(data))},
		})
		if err != nil {
			return err
		}
		fmt.Println("mail to ada, known before:", receipt.Duplicate)
	}
	hour := time.Now().UTC().Truncate(time.Hour)
	for range 2 {
		receipt, err := k.client.Insert(ctx, worker.NewJob{
			Args: Mail{To: "bob"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "bob " + hour.Format(time.RFC3339), Keep: time.Hour},
		})
		if err != nil {
			return err
		}
		fmt.Println("mail to bob in this hour, known before:", receipt.Duplicate)
	}
	return nil
}

// later inserts a job that is due in two days, and cancels it.
func (k *kitchen) later(ctx context.Context) error {
	receipt, err := k.client.Insert(ctx, worker.NewJob{Args: Mail{To: "eve"}, Subject: "jobs.mail.reminder", Delay: 48 * time.Hour})
	if err != nil {
		return err
	}
	was, err := k.client.Cancel(ctx, worker.JobRef{Sequence: receipt.Sequence, Subject: receipt.Subject})
	fmt.Println("reminder was", was.State)
	return err
}

func (k *kitchen) flaky(ctx context.Context) error {
	_, err := k.client.Insert(ctx, worker.NewJob{Args: Mail{To: "nobody"}, ID: "flaky", Subject: "jobs.flaky"})
	return err
}

// order inserts a job whose result somebody waits for.
func (k *kitchen) order(ctx context.Context) error {
	_, err := k.client.Insert(ctx, worker.NewJob{Args: Order{"7", []string{"soup", "bread"}}, ID: "order-7", Subject: "jobs.order"})
	return err
}

// work runs a worker until ctx ends.
func (k *kitchen) work(ctx context.Context, js jetstream.JetStream) error {
	logger := slog.New(slog.DiscardHandler)
	w, err := worker.New(js, worker.Config{
		AutoCreate: true, Consumer: "kitchen", Logger: logger, Middleware: []worker.Middleware{named(logger)}, Stream: "JOBS",
	})
	if err != nil {
		return err
	}
	retries := worker.Policy{MaxAttempts: 3, Backoff: worker.Exponential(100*time.Millisecond, time.Minute), Timeout: 10 * time.Second}
	err = errors.Join(
		worker.Handle(w, "jobs.mail.>", worker.Policy{Limits: []worker.Limit{perReceiver}}, k.send),
		worker.Handle(w, "jobs.flaky", retries, k.fail),
		worker.Handle(w, "jobs.order", worker.Policy{}, k.cook),
		worker.Handle(w, "jobs.dish.*", worker.Policy{Priority: worker.PriorityHigh}, k.dish),
		worker.Handle(w, "jobs.serve.*", worker.Policy{}, k.serve),
	)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// perReceiver lets two mails to each receiver start in a minute, over all workers.
var perReceiver = worker.Limit{
	Name: "mails", Burst: 2, Rate: 2, Per: time.Minute,
	Key: func(_ worker.Info, _ nats.Header, payload []byte) string {
		var mail Mail
		_ = json.Unmarshal(payload, &mail) // such a mail counts as one to ""
		return mail.To
	},
}

type loggerKey struct{}

// named gives each handler a logger with the id of its job and the trace of the publisher.
func named(logger *slog.Logger) worker.Middleware {
	return func(ctx context.Context, info worker.Info, header nats.Header, next func(context.Context) error) error {
		logger := logger.With("job", info.ID, "attempt", info.Attempt, "traceparent", header.Get("traceparent"))
		return next(context.WithValue(ctx, loggerKey{}, logger))
	}
}

func (k *kitchen) send(ctx context.Context, job *worker.Job[Mail]) error {
	if logger, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		logger.InfoContext(ctx, "sent", "to", job.Args.To)
	}
	return nil
}

// fail shows what a handler can answer.
func (k *kitchen) fail(_ context.Context, job *worker.Job[Mail]) error {
	switch job.Attempt {
	case 1:
		return errors.New("no answer") // the next attempt after Policy.Backoff
	case 2:
		return worker.Retry(200*time.Millisecond, errors.New("429 Too Many Requests")) // the next attempt when the other side says
	}
	return worker.Discard(errors.New("no such mailbox")) // no attempt can help: a dead letter
}

// cook divides an order into one job for each dish, and adds one that waits for all of them. Each has an id that comes of the order's, so
// an attempt that is repeated inserts none of them again.
func (k *kitchen) cook(ctx context.Context, job *worker.Job[Order]) error {
	for i, item := range job.Args.Items {
		err := step.Do(ctx, job, fmt.Sprint("dish-", i), func(ctx context.Context) error {
			_, err := k.client.Insert(ctx, worker.NewJob{
				Args: item, Subject: "jobs.dish", Unique: &worker.Unique{Key: fmt.Sprint(job.Args.ID, "-", i), Keep: time.Hour},
			})
			return err
		})
		if err != nil {
			return err
		}
		if err := job.Progress(ctx, map[string]int{"begun": i + 1, "of": len(job.Args.Items)}); err != nil {
			return err
		}
	}
	return step.Do(ctx, job, "serve", func(ctx context.Context) error {
		_, err := k.client.Insert(ctx, worker.NewJob{
			Args: job.Args, Subject: "jobs.serve", Unique: &worker.Unique{Key: job.Args.ID, Keep: time.Hour},
		})
		return err
	})
}

// dish stores its result under its subject.
func (k *kitchen) dish(ctx context.Context, job *worker.Job[string]) error {
	_, err := k.results.PutString(ctx, job.Subject, "hot "+job.Args)
	return err
}

// serve waits for all dishes, without using an attempt, and stores the result of the order.
func (k *kitchen) serve(ctx context.Context, job *worker.Job[Order]) error {
	var meal []string
	for i := range job.Args.Items {
		dish, err := k.results.Get(ctx, fmt.Sprint("jobs.dish.", job.Args.ID, "-", i))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return worker.Snooze(time.Second)
		} else if err != nil {
			return err
		}
		meal = append(meal, string(dish.Value()))
	}
	_, err := k.results.PutString(ctx, "order."+job.Args.ID, strings.Join(meal, ", "))
	return err
}

// look waits for the result of the order.
func (k *kitchen) look(ctx context.Context) error {
	watcher, err := k.results.Watch(ctx, "order.7")
	if err != nil {
		return err
	}
	defer watcher.Stop() //nolint:errcheck // the server ends
	for entry := range watcher.Updates() {
		if entry != nil { // nil follows what was there before
			fmt.Println("order 7:", string(entry.Value()))
			break
		}
	}
	return nil
}

// replay waits for the dead letter, and has its job run again.
func (k *kitchen) replay(ctx context.Context, js jetstream.JetStream) error {
	dead, err := deadletter.Open(ctx, js, deadletter.Config{})
	if err != nil {
		return err
	}
	for {
		found, err := dead.Survey(ctx, deadletter.Filter{Stream: "JOBS"}, deadletter.SurveyOptions{})
		if err != nil {
			return err
		}
		if len(found.Groups) == 0 {
			time.Sleep(50 * time.Millisecond) // nobody else waits here
			continue
		}
		fmt.Println("dead:", found.Groups[0].Signature)
		would, err := dead.Replay(ctx, deadletter.Filter{Stream: "JOBS"}, deadletter.ReplayOptions{DryRun: true})
		fmt.Println("to run again:", would.Done)
		return err
	}
}
