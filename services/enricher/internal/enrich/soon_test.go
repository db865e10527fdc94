package enrich

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

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
			if asked < 10 {
				t.Errorf("%d messages are too few to be all", asked-1)
			}
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
