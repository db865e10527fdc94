package answer

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The last attempts are kept, the latest first, and all are counted.
func TestRecentKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	var r Recent
	const n = maxRecent + 50
	for i := range uint64(n) {
		r.Add(inspect.Attempt{Outcome: "completed", Sequence: i})
	}
	r.Add(inspect.Attempt{Outcome: "dead", Sequence: n})
	all := r.Latest()
	check.Require(t, len(all) == maxRecent, "%d attempts", len(all))
	for i, a := range all {
		check.Require(t, a.Sequence == uint64(n-i), "place %d has the job %d, want %d", i, a.Sequence, n-i)
	}
	got := r.counted()
	check.That(t, len(got) == 2 && got["completed"] == n && got["dead"] == 1, "counted %v", got)
}

// That a worker may not answer inspectors is no reason why its requests are not answered.
func TestDenialOfInspectionIsToldApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`Permissions Violation for Subscription to "worker.v1.info"`: true, `Permissions Violation for Subscription to "$SRV.PING"`: true,
		`Permissions Violation for Publish to "$JS.API.STREAM.NAMES"`: false,
	} {
		check.Same(t, text, IsDenied(errors.New(text)), want)
	}
}
