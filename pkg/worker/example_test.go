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
