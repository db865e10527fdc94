package imports

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// queued returns how many messages the stream of jobs holds.
func (i *instance) queued(t *testing.T) uint64 {
	t.Helper()
	stream, err := i.js.Stream(t.Context(), contracts.StreamImportJobs)
	check.OK(t, err)
	return stream.CachedInfo().State.Msgs
}

// TestJobIsQueuedOnceHoweverLongItWaits hands a job in again after the stream has forgotten its message ID.
func TestJobIsQueuedOnceHoweverLongItWaits(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		for range 3 {
			i.submit(t, job("j", "v"))
			check.Same(t, "messages are queued", i.queued(t), 1)
			elapse(10 * time.Minute)
		}
	})
}

// TestRetriedJobRunsAlthoughTheMessageBeforeIsStillQueued: a run is not refused because of the one before it.
func TestRetriedJobRunsAlthoughTheMessageBeforeIsStillQueued(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		i.submit(t, job("j", "v"))
		check.OK(t, check.Err(i.Cancel(t.Context(), "j")))
		check.OK(t, check.Err(i.Retry(t.Context(), "j")))
		check.Same(t, "messages are queued", i.queued(t), 2)
		i.work(t)
		i.ready(t, "j")
	})
}
