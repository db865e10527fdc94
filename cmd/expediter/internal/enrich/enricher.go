package enrich

import (
	"context"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Enricher answers requests: an embedded pipeline, or a client of a service.
type Enricher interface {
	// Enrich answers a request of at most contracts.MaxResults restaurants with the same restaurants in the same
	// order. When req.WaitMS is set it may take that long; what is PENDING then and has no reason is asked again.
	//
	// It is called from several goroutines at once, and asking again for a place must be cheap and safe. An error ends
	// the run; it wraps ErrUnavailable when no service answers. The Enricher itself retries.
	Enrich(ctx context.Context, req contracts.EnrichRequest) (Answer, error)
}

// Answer is the answer of an Enricher.
type Answer struct {
	// Details holds the whole result by place id where it is known: score, venue. Defaults to none, and then only
	// status, URL and reason are shown.
	Details map[string]contracts.EnrichResult

	// Provider is the provider whose state of each restaurant is the result. Defaults to contracts.ProviderWolt.
	Provider string

	// Response is the answer of the service.
	Response contracts.EnrichResponse
}

// Progress receives the progress of a run. Its methods are called from several goroutines.
type Progress interface {
	// Answered is called for each place in the order of the input, with its status and its offset in the input.
	Answered(status string, offset int64)

	// Asked is called before n places are asked for.
	Asked(n int)
}
