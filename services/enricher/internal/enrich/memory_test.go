package enrich

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
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
				s, _ := r.State(contracts.ProviderWolt)
				check.That(t, s.Status == contracts.StatusFound, "place %d is %+v", n, s)
			}
		}
		check.Same(t, "reads of known places", count()-before, 0)
		key := check.Must(contracts.EnrichSlotKey(contracts.ProviderWolt, places(1)[0].PlaceID))(t)
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

// soon is how long after a crash, when everything is up again, a place is answered that no provider puts off, with default settings.
const soon = 30 * time.Second

// Each message that an instance sends in the life of a place meets with each mishap, one message of each place. As soon as that is
// promised those who ask again have the answer, and no job is left. Settings are the defaults.
func TestAPlaceIsAnsweredSoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			slow := &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
				elapse(8 * time.Second) // for as long as a provider may take by default
				return venueOf(place)
			}}
			client := newInstance(t, srv, slow) // has a connection of its own, and works nothing
			wire := natstest.NewWire(t, srv, mishap)
			var i *instance
			start := func() {
				i = newInstanceOn(t, srv, slow, wire.Connect())
				i.cutOff = mishap.Dies
				i.work(t)
			}
			start()
			var asking sync.WaitGroup
			defer asking.Wait()
			longest, asked := time.Duration(0), 0
			for struck := true; struck; asked++ {
				req := contracts.EnrichRequest{RequestID: fmt.Sprint("req-", asked), Results: places(asked + 1)[asked:]}
				wire.Aim(asked + 1)
				first := i
				asking.Go(func() {
					check.Is(t, check.Err(first.Enrich(context.WithoutCancel(t.Context()), req)), nil)
				})
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return client.open(t, req) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; answered after %s at most", asked-1, longest)
			check.That(t, asked >= 10, "%d messages are too few to be all", asked-1)
		})
	}
}

// open says what of a request is not answered, "" for nothing. A server that is away does not say.
func (i *instance) open(t *testing.T, req contracts.EnrichRequest) string {
	t.Helper()
	resp, err := i.Enrich(t.Context(), req)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stream, err := i.js.Stream(ctx, contracts.StreamEnrichJobs)
	if err != nil {
		return err.Error()
	}
	if left := stream.CachedInfo().State.Msgs; left > 0 || resp.Pending > 0 {
		return fmt.Sprintf("%d jobs are in the stream, %+v", left, resp)
	}
	return ""
}
