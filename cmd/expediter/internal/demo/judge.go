package demo

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// tell counts the outcomes of the look-ups.
func (d *demo) tell(ctx context.Context) error {
	results, err := d.pipeline.Enrichers[0].Results(ctx, contracts.ProviderWolt, contracts.EnrichRequest{Results: d.sample.Places})
	if err != nil {
		return err
	}
	r := &d.report.Enricher
	outcomes := map[contracts.Outcome]int{}
	for _, result := range results {
		outcomes[result.Outcome]++
	}
	r.Found, r.NotFound = outcomes[contracts.OutcomeFound], outcomes[contracts.OutcomeNotFound]
	r.Ambiguous, r.Errors = outcomes[contracts.OutcomeAmbiguous], outcomes[contracts.OutcomeError]
	d.sayf("matched    %d found, %d not in the catalogue, %d ambiguous", r.Found, r.NotFound, r.Ambiguous)
	return nil
}

// judge checks the guarantees against the demo's own counts.
func (d *demo) judge() {
	r := d.report.Enricher
	check := func(holds bool, format string, args ...any) {
		mark := "✓"
		text := fmt.Sprintf(format, args...)
		if !holds {
			mark = "✗"
			d.report.Broken = append(d.report.Broken, text)
		}
		d.sayf("%s %s", mark, text)
	}
	differ := d.disagreements()
	check(r.Jobs == r.Distinct, "each place is one job: %d jobs for %d places", r.Jobs, r.Distinct)
	check(r.ProviderCalls == r.Distinct && r.RepeatedCalls == 0,
		"the provider is asked once for each place: %d calls for %d places, %d of them repeated", r.ProviderCalls, r.Distinct, r.RepeatedCalls)
	check(r.PendingLeft == 0, "every place is answered: %d of %d answers still pending", r.PendingLeft, r.Places)
	check(differ == 0, "all users get the same answers: %d places with different answers for two users", differ)
	check(r.PendingAgain == 0, "an answer stays known: %d places pending in repeated requests", r.PendingAgain)
	decided := r.Found + r.NotFound + r.Ambiguous
	check(decided == r.Distinct, "every lookup ends with a decision: %d of %d", decided, r.Distinct)
	check(r.DeadLetters == 0, "nothing ends in the dead letters: %d", r.DeadLetters)
	i := d.report.Importer
	check(i.AsExpected == i.Submitted, "every import ends as it was made to: %d of %d", i.AsExpected, i.Submitted)
	check(i.TranscriptFetches == i.Sources, "a source is fetched once: %d fetches of %d sources", i.TranscriptFetches, i.Sources)
	check(i.Recipes == i.Ready && i.DuplicateRecipes == 0,
		"each import that is ready is one recipe: %d recipes of %d imports, %d of them repeated", i.Recipes, i.Ready, i.DuplicateRecipes)
	d.judgeNotifier(check)
	d.report.OK = len(d.report.Broken) == 0
}

func (d *demo) judgeNotifier(check func(holds bool, format string, args ...any)) {
	n := d.report.Notifier
	check(n.DuplicatesDropped == n.Events, "an event that is published twice is one event: %d published, %d events", n.Published, n.Events)
	check(n.Refused == 1, "another event under the same id is refused: %d refused", n.Refused)
	check(n.Lost == 0 && n.Notifications == n.Sent+n.Suppressed+n.Failed,
		"every notification reaches its user: %d of %d sent or suppressed, %d lost", n.Sent+n.Suppressed, n.Notifications, n.Lost)
	check(n.DuplicateSends == 0, "no notification is sent twice: %d of %d messages repeated", n.DuplicateSends, n.Messages)
	check(n.Devices == len(devices) && n.DeviceMessages == len(devices),
		"each device of a person is notified once: %d notifications for %d devices, %d messages", n.Devices, len(devices), n.DeviceMessages)
	check(n.Failed == 0 && n.DeadLetters == 0, "nothing is given up: %d notifications failed, %d dead letters", n.Failed, n.DeadLetters)
}

// disagreements returns the number of places for which two users got different answers.
func (d *demo) disagreements() int {
	type said struct{ status, url string }
	first, differ := map[string]said{}, map[string]bool{}
	for _, u := range d.users {
		for id, state := range u.states {
			now := said{status: string(state.Status)}
			if state.URL != nil {
				now.url = *state.URL
			}
			if before, known := first[id]; known && before != now {
				differ[id] = true
			}
			first[id] = now
		}
	}
	return len(differ)
}

// Report is the result of a run. Its JSON is the last line of the demo's output.
type Report struct {
	OK       bool           `json:"ok"`
	Enricher EnricherReport `json:"enricher"`
	Importer ImporterReport `json:"importer"`
	Notifier NotifierReport `json:"notifier"`
	Broken   []string       `json:"broken,omitempty"` // the invariants that did not hold
	Error    string         `json:"error,omitempty"`  // the reason why the demo did not run to its end
	Seconds  float64        `json:"seconds"`
}

// EnricherReport counts the work of the enricher. Jobs and provider calls are counted outside the service: in the
// stream of the jobs, and by the provider.
type EnricherReport struct {
	Requests      int `json:"requests"`
	Places        int `json:"places"`   // asked for, by all requests together
	Distinct      int `json:"distinct"` // different places among them
	Jobs          int `json:"jobs"`
	DuplicateJobs int `json:"duplicate_jobs"`
	ProviderCalls int `json:"provider_calls"`
	RepeatedCalls int `json:"repeated_calls"`
	Found         int `json:"found"`
	NotFound      int `json:"not_found"`
	Ambiguous     int `json:"ambiguous"`
	Errors        int `json:"errors"`
	Patches       int `json:"patches"`
	PendingLeft   int `json:"pending_left"`
	PendingAgain  int `json:"pending_again"` // after all searches were repeated
	DeadLetters   int `json:"dead_letters"`
}

// ImporterReport counts the work of the importer. Fetches are counted by the site, and recipes in the store.
type ImporterReport struct {
	Submitted         int            `json:"submitted"` // jobs, each submitted twice
	Ready             int            `json:"ready"`
	Failed            int            `json:"failed"`
	AsExpected        int            `json:"as_expected"` // ended as expected
	Codes             map[string]int `json:"codes"`       // of failed imports
	Recipes           int            `json:"recipes"`
	DuplicateRecipes  int            `json:"duplicate_recipes"`
	Sources           int            `json:"sources"` // different sources
	TranscriptFetches int            `json:"transcript_fetches"`
}

// NotifierReport counts the work of the notifiers. Notifications are counted as the notifier lists them, and messages in the channel that
// receives them.
type NotifierReport struct {
	Published         int `json:"told"`               // published events, with repetitions
	Events            int `json:"events"`             // new events
	DuplicatesDropped int `json:"duplicates_dropped"` // events that had been published before
	Refused           int `json:"refused"`            // other events under the id of a published one
	Notifications     int `json:"notifications"`
	Sent              int `json:"sent"` // to the channel
	Suppressed        int `json:"suppressed"`
	Failed            int `json:"failed"`
	Messages          int `json:"messages"`        // different messages that arrived
	DuplicateSends    int `json:"duplicate_sends"` // repeated messages
	Lost              int `json:"lost"`            // expected notifications without an outcome
	DeadLetters       int `json:"dead_letters"`
	Devices           int `json:"devices"`         // notifications for the devices of one person
	DeviceMessages    int `json:"device_messages"` // messages to these devices
}
