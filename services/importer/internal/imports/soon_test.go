package imports

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// soon is how long after a crash, when everything is up again, a job is READY that nothing far away puts off, with default settings.
const soon = 30 * time.Second

// Each message that an importer sends in the life of a job meets with each mishap, one message of each job. As soon as that is
// promised the job is READY. Settings are the defaults.
func TestAJobIsReadySoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			client := newInstance(t, srv) // has a connection of its own, and works nothing
			wire := natstest.NewWire(t, srv, mishap)
			start := func() {
				i := newInstanceOn(t, srv, wire.Connect())
				i.cutOff = mishap.Dies
				i.work(t)
			}
			start()
			longest, jobs := time.Duration(0), 0
			for struck := true; struck; jobs++ {
				id := fmt.Sprint("job-", jobs)
				wire.Aim(jobs + 1)
				client.submit(t, job(id, fmt.Sprint("v", jobs)))
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return client.open(t, id) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; READY after %s at most", jobs-1, longest)
			check.That(t, jobs >= 20, "%d messages are too few to be all", jobs-1)
		})
	}
}

// open says what of a job is not done, "" for nothing. A server that is away does not say.
func (i *instance) open(t *testing.T, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	j, err := i.Get(ctx, id)
	if err != nil {
		return err.Error()
	}
	stream, err := i.js.Stream(ctx, contracts.StreamImportJobs)
	if err != nil {
		return err.Error()
	}
	if left := stream.CachedInfo().State.Msgs; left > 0 || j.Status != contracts.ImportReady {
		return fmt.Sprintf("%d messages are in the stream, %+v", left, j)
	}
	return ""
}
