package workertest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
)

// A test of one handler: the job goes through a real stream and a real worker, without a wait for retries.
func ExampleRun() {
	send := func(_ context.Context, job *worker.Job[mail]) error {
		if job.Args.To == "" {
			return worker.Discard(errors.New("no receiver")) // no retry can fix it
		}
		return nil
	}

	_ = func(t *testing.T) { // TestAMailToNobodyIsDead
		r := workertest.Run(t, worker.Policy{MaxAttempts: 3}, send, mail{})
		if r.Outcome != worker.OutcomeDead || r.Dead.Reason != worker.ReasonDiscarded {
			t.Errorf("a mail to nobody is %s, want dead: %v", r.Outcome, r.Err)
		}
	}
}
