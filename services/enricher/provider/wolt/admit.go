package wolt

import (
	"context"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

// maxSearches bounds searchesAtOnce where the rate hardly limits anything.
const maxSearches = 1 << 16

// searchesAtOnce is how many searches can be under way so that each ends within
// Timeout although it makes all its calls: half of that time for their turns under
// the rate, half for the answers. With more of them each gets a few of its calls,
// none ends, and what was asked is lost.
func (c Config) searchesAtOnce() int {
	turns := c.Rate * c.Timeout.Seconds() / 2

	return int(min(max(turns/float64(c.MaxCalls), 1), maxSearches))
}

// admit waits until another search may begin, in the order in which they came, for
// as long as the caller's deadline leaves Timeout for the search itself. The caller
// calls leave when it has ended.
func (c *Client) admit(ctx context.Context) (leave func(), err error) {
	leave = func() { <-c.searches }

	select {
	case c.searches <- struct{}{}:
		return leave, nil
	default:
	}

	wait := ctx

	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc

		wait, cancel = context.WithDeadline(ctx, deadline.Add(-c.config.Timeout))
		defer cancel()
	}

	select {
	case c.searches <- struct{}{}:
		return leave, nil
	case <-wait.Done():
	}

	if ctx.Err() != nil {
		return nil, c.ended(ctx)
	}

	failure := c.fail(provider.KindBusy, "nothing was asked: as many searches are under way as the rate set here lets end in time", nil)
	failure.RetryAfter = bound(c.config.Timeout/2, c.config.MaxRetryAfter)

	return nil, failure
}
