package deadletter_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// store returns a store on a separate server with three letters of two kinds.
func store() (*deadletter.Store, func()) {
	ctx := context.Background()

	srv := must(natsrun.Start(natsrun.Config{Memory: true}))
	nc := must(srv.Connect())
	js := must(jetstream.New(nc))

	for _, cfg := range []jetstream.StreamConfig{
		{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy}, {Name: "DEAD", AllowDirect: true, Subjects: []string{"dead.>"}},
	} {
		must(js.CreateStream(ctx, cfg))
	}

	for i, text := range []string{"smtp: code #", "no such user", "smtp: code #"} {
		letter := worker.DeadLetter{
			Error: text, ID: fmt.Sprint("job-", i+1), Payload: []byte(`{}`), Reason: worker.ReasonExhausted, Sequence: uint64(i + 1),
			Signature: text, Stream: "JOBS", Subject: fmt.Sprint("jobs.mail.", i+1), Worker: "w1",
		}
		must(worker.PublishDeadLetter(ctx, js, "dead", letter))
	}

	return must(deadletter.Open(ctx, js, deadletter.Config{})), func() {
		nc.Close()
		srv.Stop()
	}
}

func ExampleStore_Survey() {
	dead, stop := store()
	defer stop()

	overview := must(dead.Survey(context.Background(), deadletter.Filter{Stream: "JOBS"}, deadletter.SurveyOptions{}))

	for _, g := range overview.Groups {
		fmt.Println(g.Count, g.Reason, g.Signature, g.Subjects)
	}

	// Output:
	// 2 exhausted smtp: code # jobs.mail.>
	// 1 exhausted no such user jobs.mail.2
}

func ExampleGroup_Filter() {
	dead, stop := store()
	defer stop()

	ctx := context.Background()

	overview := must(dead.Survey(ctx, deadletter.Filter{}, deadletter.SurveyOptions{}))

	largest := overview.Groups[0].Filter(deadletter.Filter{})

	would := must(dead.Replay(ctx, largest, deadletter.ReplayOptions{DryRun: true}))

	did := must(dead.Replay(ctx, largest, deadletter.ReplayOptions{Rate: 10}))

	fmt.Println(would.Done, did.Done, did.Skipped, did.Failed)
	// Output: 2 2 0 0
}

func ExampleStore_Replay() {
	dead, stop := store()
	defer stop()

	one := deadletter.Filter{Sequences: []uint64{2}}

	must(dead.Replay(context.Background(), one, deadletter.ReplayOptions{
		Each: func(o deadletter.Outcome) { fmt.Println(o.Entry.DeadLetter.ID, o.Sequence, o.Err) },
		Edit: func(worker.DeadLetter) ([]byte, error) { return []byte(`{"user":"u2"}`), nil },
	}))

	// Output: job-2 1 <nil>
}

// must ends an example that failed.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
