package enrich

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Stats is what a Service has done since it was made.
type Stats struct {
	Requests      int64                `json:"requests"`       // answered
	Places        int64                `json:"places"`         // asked for, each provider counted
	Hits          int64                `json:"hits"`           // answered from a slot
	Jobs          int64                `json:"jobs"`           // queued
	ProviderCalls int64                `json:"provider_calls"` // searches made by jobs
	Found         int64                `json:"found"`          // look-ups that ended so
	NotFound      int64                `json:"not_found"`
	Ambiguous     int64                `json:"ambiguous"`
	Errors        int64                `json:"errors"`
	Patches       int64                `json:"patches"` // handed to subscribers
	Skipped       map[SkipReason]int64 `json:"skipped"`
}

type counters struct {
	requests, places, hits, jobs, providerCalls, found, notFound, ambiguous, errors, patches atomic.Int64

	mu    sync.Mutex
	skips map[SkipReason]int64
}

func (c *counters) skipped(reason SkipReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.skips == nil {
		c.skips = map[SkipReason]int64{}
	}
	c.skips[reason]++
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	c := &s.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Requests: c.requests.Load(), Places: c.places.Load(), Hits: c.hits.Load(), Jobs: c.jobs.Load(),
		ProviderCalls: c.providerCalls.Load(), Found: c.found.Load(), NotFound: c.notFound.Load(),
		Ambiguous: c.ambiguous.Load(), Errors: c.errors.Load(), Patches: c.patches.Load(), Skipped: maps.Clone(c.skips),
	}
}

func (c *counters) outcome(o contracts.Outcome) {
	switch o {
	case contracts.OutcomeFound:
		c.found.Add(1)
	case contracts.OutcomeNotFound:
		c.notFound.Add(1)
	case contracts.OutcomeAmbiguous:
		c.ambiguous.Add(1)
	case contracts.OutcomeError:
		c.errors.Add(1)
	}
}
