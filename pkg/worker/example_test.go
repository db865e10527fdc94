package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
)

// Mail is the payload of a job.
type Mail struct {
	To string `json:"to"`
}

func Example_controlErrors() {
	busy := errors.New("429 Too Many Requests")
	handler := func(_ context.Context, job *worker.Job[Mail]) error {
		switch {
		case job.Args.To == "":
			return worker.Discard(errors.New("no address")) // no retry can mend it
		case time.Now().Before(job.EnqueuedAt):
			return worker.Snooze(time.Hour) // not yet; uses no attempt
		case job.Attempt == 1:
			return worker.Retry(30*time.Second, busy) // the remote service said when
		}
		return nil
	}
	job := &worker.Job[Mail]{Info: worker.Info{Attempt: 1}, Args: Mail{To: "a@example.org"}}
	err := handler(context.Background(), job)
	fmt.Println(err)
	fmt.Println(errors.Is(err, busy))
	fmt.Println(handler(context.Background(), &worker.Job[Mail]{}))
	// Output:
	// 429 Too Many Requests
	// true
	// no address
}

func ExamplePolicy() {
	policy := worker.Policy{
		Backoff:     worker.Exponential(500*time.Millisecond, time.Minute),
		MaxAttempts: 4,
		Timeout:     90 * time.Second,
	}
	for attempt := 1; attempt < policy.MaxAttempts; attempt++ {
		fmt.Println(policy.Backoff(attempt))
	}
	// Output:
	// 500ms
	// 1s
	// 2s
}

func ExampleParseDeadLetter() {
	body := []byte(`{"attempts":3,"maxAttempts":3,"reason":"exhausted","stream":"JOBS","subject":"jobs.mail.7","sequence":42,` +
		`"payload":"eyJ0byI6ImEifQ==","error":"dial tcp 10.0.0.7:25: refused","signature":"dial tcp #:#: refused"}`)
	letter, err := worker.ParseDeadLetter(body)
	fmt.Println(letter.Subject, letter.Reason, letter.Signature, string(letter.Payload), err)
	// Output: jobs.mail.7 exhausted dial tcp #:#: refused {"to":"a"} <nil>
}

func ExampleHooks() {
	counts := make(map[worker.Outcome]int)
	hooks := worker.Hooks{
		Settled: func(s worker.Settlement) { counts[s.Outcome]++ }, // a real one locks
	}
	hooks.Settled(worker.Settlement{Outcome: worker.OutcomeCompleted, Ran: time.Second})
	fmt.Println(counts)
	// Output: map[completed:1]
}

func ExampleTimeoutError() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 0, &worker.TimeoutError{Timeout: time.Minute})
	defer cancel()
	if timeout, ok := errors.AsType[*worker.TimeoutError](context.Cause(ctx)); ok {
		fmt.Println("out of time after", timeout.Timeout)
	}
	// Output: out of time after 1m0s
}

func ExampleStreamConfig() {
	cfg := worker.StreamConfig("JOBS", "jobs.>")
	cfg.Replicas = 3
	fmt.Println(cfg.Name, cfg.Subjects, cfg.Replicas)
	// Output: JOBS [jobs.> jobs-later.> jobs-done.>] 3
}

func ExampleInsertError() {
	var err error = &worker.InsertError{Cause: context.DeadlineExceeded, ID: "a1", Subject: "jobs.mail.7", Unknown: true}
	if failed, ok := errors.AsType[*worker.InsertError](err); ok && failed.Unknown {
		fmt.Println(err) // insert it again, with the same ID or key
	}
	// Output: worker: job "a1" on "jobs.mail.7" perhaps inserted: context deadline exceeded
}
