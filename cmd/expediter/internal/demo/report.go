package demo

import (
	"slices"
	"time"
)

// Report is the result of a run. Its JSON is the last line of the demo's output.
type Report struct {
	OK       bool           `json:"ok"`
	Enricher EnricherReport `json:"enricher"`
	Importer ImporterReport `json:"importer"`
	Notifier NotifierReport `json:"notifier"`
	Broken   []string       `json:"broken,omitempty"` // the invariants that did not hold
	Error    string         `json:"error,omitempty"`  // why the demo did not run to its end
	Seconds  float64        `json:"seconds"`
}

// EnricherReport counts what the enricher did. Jobs and provider calls are counted outside the service: in the stream
// with the jobs, and by the provider.
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

// ImporterReport counts what the importer did. Fetches are counted by the site that is fetched from, and recipes in the
// store.
type ImporterReport struct {
	Submitted         int            `json:"submitted"` // jobs, each submitted twice
	Ready             int            `json:"ready"`
	Failed            int            `json:"failed"`
	AsExpected        int            `json:"as_expected"` // ended as they were made to
	Codes             map[string]int `json:"codes"`       // of those that failed
	Recipes           int            `json:"recipes"`
	DuplicateRecipes  int            `json:"duplicate_recipes"`
	Sources           int            `json:"sources"` // different ones
	TranscriptFetches int            `json:"transcript_fetches"`
}

// NotifierReport counts what the notifiers did. Rows are counted in the stream, with the states of their deliveries;
// letters where they arrived.
type NotifierReport struct {
	Told              int `json:"told"`               // events, each as often as it was published
	Events            int `json:"events"`             // those that were new
	DuplicatesDropped int `json:"duplicates_dropped"` // those that had been published before
	Refused           int `json:"refused"`            // those that were others under the same id
	Rows              int `json:"rows"`
	Sent              int `json:"sent"` // the delivered ones among them
	Suppressed        int `json:"suppressed"`
	Failed            int `json:"failed"`
	Letters           int `json:"letters"`         // different ones that came
	DuplicateSends    int `json:"duplicate_sends"` // those that came once more
	Lost              int `json:"lost"`            // rows that there should be, and that nothing became of
	DeadLetters       int `json:"dead_letters"`
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
