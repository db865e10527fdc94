package worker

import (
	"errors"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

// The last attempts are kept, the latest first, and all are counted.
func TestRecentKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	var r recent
	const n = maxRecent + 50
	for i := range uint64(n) {
		r.add(inspect.Attempt{Outcome: "completed", Sequence: i})
	}
	r.add(inspect.Attempt{Outcome: "dead", Sequence: n})
	all := r.latest()
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
		check.Same(t, text, isInspectionDenied(errors.New(text)), want)
	}
}
