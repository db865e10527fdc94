package enrich

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// reads counts the reads of slots that reach the server.
func reads(t *testing.T, srv *natsrun.Server) (count func() int) {
	t.Helper()
	nc, _ := natstest.Connect(t, srv)
	sub, err := nc.SubscribeSync("$JS.API.DIRECT.GET.KV_" + contracts.BucketEnrich)
	if err == nil {
		err = nc.Flush()
	}
	check.OK(t, err)
	return func() int {
		synctest.Wait()
		n, _, err := sub.Pending()
		check.Is(t, err, nil)
		return n
	}
}

// TestKnownPlacesAreAnsweredFromMemory: a request whose places this process knows reads nothing, until another process
// replaces a result: that is answered for at once.
func TestKnownPlacesAreAnsweredFromMemory(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv, &far{}), newInstance(t, srv, &far{})
		stop := i.work(t)
		i.ask(t, "req-0", places(10))
		i.told(t, "req-0")
		stop()
		other.ask(t, "req-1", places(10)) // has read what it did not know, or been told
		count := reads(t, srv)
		before := count()
		for range 5 {
			elapse(time.Minute / 2)
			for n, r := range other.ask(t, "req-2", places(10)).Results {
				if s, _ := r.State(contracts.ProviderWolt); s.Status != contracts.StatusFound {
					t.Errorf("place %d is %+v", n, s)
				}
			}
		}
		check.Same(t, "reads of known places", count()-before, 0)
		key, err := contracts.EnrichSlotKey(contracts.ProviderWolt, places(1)[0].PlaceID)
		check.OK(t, err)
		check.OK(t, i.flight.Invalidate(t.Context(), key))
		synctest.Wait() // the push is there
		resp := other.ask(t, "req-3", places(10))
		wantStatus(t, state(t, resp, 0), contracts.StatusPending)
		wantStatus(t, state(t, resp, 1), contracts.StatusFound)
	})
}

// TestWithoutAMemoryEveryRequestReads is the same without one.
func TestWithoutAMemoryEveryRequestReads(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{}, func(cfg *Config) { cfg.MemoryBytes = -1 })
		stop := i.work(t)
		i.ask(t, "req-0", places(10))
		i.told(t, "req-0")
		stop()
		count := reads(t, srv)
		before := count()
		i.ask(t, "req-1", places(10))
		check.Same(t, "reads", count()-before, 1)
	})
}
