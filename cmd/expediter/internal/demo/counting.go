package demo

import (
	"context"
	"sync"
	"time"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// distance is how long a call to the catalogue is made to take, as one to a provider far away would.
const distance = 40 * time.Millisecond

// counting is a provider that counts how often it is asked for each place: the demo's own evidence, independent of the
// service's counters.
type counting struct {
	provider.Provider

	mu    sync.Mutex
	calls map[string]int // by name, address and city
}

func newCounting(p provider.Provider) *counting {
	return &counting{Provider: p, calls: map[string]int{}}
}

// Search implements provider.Provider.
func (c *counting) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	c.mu.Lock()
	c.calls[place.Name+"\x00"+place.Address+"\x00"+place.City]++
	c.mu.Unlock()
	far := time.NewTimer(distance)
	defer far.Stop()
	select {
	case <-far.C:
	case <-ctx.Done():
	}
	return c.Provider.Search(ctx, place)
}

// total is how often it was asked; repeated is how many of those calls were for a place it was asked for before.
func (c *counting) total() (total, repeated int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.calls {
		total += n
		repeated += n - 1
	}
	return total, repeated
}
