package demo

import (
	"slices"
	"time"
)

// Report is what a run came to. Its JSON is the last line of the demo's output.
type Report struct {
	OK       bool           `json:"ok"`
	Enricher EnricherReport `json:"enricher"`
	Broken   []string       `json:"broken,omitempty"` // the invariants that did not hold
	Error    string         `json:"error,omitempty"`  // what kept the demo from running to its end
	Seconds  float64        `json:"seconds"`
}

// EnricherReport counts what the enricher did. Jobs and provider calls are counted by witnesses beside the service: the
// stream that holds the jobs, and the provider that is asked.
type EnricherReport struct {
	Requests      int     `json:"requests"`
	Places        int     `json:"places"`   // asked for, by all requests together
	Distinct      int     `json:"distinct"` // different ones among them
	Jobs          int     `json:"jobs"`
	DuplicateJobs int     `json:"duplicate_jobs"`
	ProviderCalls int     `json:"provider_calls"`
	RepeatedCalls int     `json:"repeated_calls"`
	Found         int     `json:"found"`
	NotFound      int     `json:"not_found"`
	Ambiguous     int     `json:"ambiguous"`
	Errors        int     `json:"errors"`
	AsExpected    int     `json:"as_expected"` // decided as the sample's author did
	Patches       int     `json:"patches"`
	PendingLeft   int     `json:"pending_left"`
	PendingAgain  int     `json:"pending_again"` // when everything was asked for again
	DeadLetters   int     `json:"dead_letters"`
	HitRequests   int     `json:"hit_requests"`
	P50HitMS      float64 `json:"p50_hit_ms"`
	P99HitMS      float64 `json:"p99_hit_ms"`
}

// percentile returns the p-th percentile of durations in milliseconds, to the microsecond.
func percentile(durations []time.Duration, p int) float64 {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	at := min(len(sorted)*p/100, len(sorted)-1)
	return float64(sorted[at].Microseconds()) / 1000
}
