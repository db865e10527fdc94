package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// mail to ada, known before: false
	// mail to ada, known before: true
	// mail to bob in this hour, known before: false
	// mail to bob in this hour, known before: true
	// reminder was scheduled
	// order 7: hot soup, hot bread
	// dead: no such mailbox
	// to run again: 1
}

func TestFail(t *testing.T) {
	t.Parallel()
	k := &kitchen{}
	for attempt, want := range map[int]worker.Outcome{1: worker.OutcomeRetried, 2: worker.OutcomeRetried, 3: worker.OutcomeDead} {
		r := workertest.Run(t, worker.Policy{MaxAttempts: 5}, k.fail, Mail{To: "nobody"}, func(o *workertest.Options) { o.Attempt = attempt })
		if r.Outcome != want {
			t.Errorf("attempt %d is %s after %v, want %s", attempt, r.Outcome, r.Err, want)
		}
	}
}
