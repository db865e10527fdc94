package enrich

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Config says how places are asked for.
type Config struct {
	// BatchSize is how many places go into one request, up to contracts.MaxResults. Defaults to 20.
	BatchSize int

	// Concurrency is how many requests are under way at the same time. Defaults to 4.
	Concurrency int

	// Full adds the enriched place with all of its fields to each row. Defaults to false.
	Full bool

	// Progress receives the progress of the run. Defaults to none.
	Progress Progress

	// Providers names the providers to ask. Defaults to all that the enricher has.
	Providers []string

	// Timeout is how long to wait for the places of one request, from the moment it is sent. It applies with and
	// without Wait. Defaults to two minutes.
	Timeout time.Duration

	// Wait asks again until no place is pending any more. Defaults to false: the first answer counts.
	Wait bool
}

func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, 20)
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	if c.Progress == nil {
		c.Progress = nobody{}
	}
	c.Timeout = cmp.Or(c.Timeout, 2*time.Minute)
	return c
}

// Validate returns every mistake in the configuration. Run calls it too.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.BatchSize < 1 || c.BatchSize > contracts.MaxResults {
		errs = append(errs, fmt.Errorf("enrich: BatchSize is %d: want 1 to %d", c.BatchSize, contracts.MaxResults))
	}
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("enrich: Concurrency is %d: want 1 to 1000", c.Concurrency))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("enrich: Timeout is %s: want more than 0", c.Timeout))
	}
	return errors.Join(errs...)
}

type nobody struct{}

func (nobody) Answered(string, int64) {}
func (nobody) Asked(int)              {}

// Enricher answers requests: an embedded pipeline, or a client of a service.
type Enricher interface {
	// Enrich answers a request of at most contracts.MaxResults restaurants with the same restaurants in the same
	// order. When req.WaitMS is set it may take that long; what is PENDING then and has no reason is asked again.
	//
	// It is called from several goroutines at once, and asking again for a place must be cheap and safe. An error ends
	// the run. One that wraps ErrUnavailable ends it when no request was answered before, and after Config.Timeout.
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

var (
	// ErrMismatch is returned when an answer is not about the places of its request.
	ErrMismatch = errors.New("enrich: the answer does not match the request")

	// ErrTimeout is returned when places were still pending after Config.Timeout. The rows of all places were written,
	// those of the pending ones with the reason "timeout".
	ErrTimeout = errors.New("enrich: timeout")

	// ErrUnavailable is wrapped by an Enricher that cannot be reached or refuses to work, so that callers can
	// distinguish that from a failure of their own.
	ErrUnavailable = errors.New("enrich: unavailable")
)
