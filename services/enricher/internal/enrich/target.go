package enrich

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// target is one place at one provider, as a request asks for it. A place that stands in a request more than once is one
// target.
type target struct {
	job     contracts.EnrichJob // without its claim
	key     string              // of its slot
	results []int               // the restaurants of the request that it is about
	seen    flight.Slot         // its slot, as it was last

	state contracts.ProviderState
	// settled: the state is what the look-up came to, whether it is an answer or not.
	settled bool

	// told: the subscriber of the place has received its outcome, so the place need not be looked up again.
	told bool
	// unclaimed: no process works on the place, because it could not be claimed or queued.
	unclaimed bool
}

// targets lists what a request asks for, in its order.
func targets(req contracts.EnrichRequest, requestID string, providers []string) ([]*target, error) {
	list := make([]*target, 0, len(req.Results)*len(providers))
	byKey := make(map[string]*target, cap(list))
	for i, r := range req.Results {
		for _, name := range providers {
			key, err := contracts.EnrichSlotKey(name, r.PlaceID)
			if err != nil {
				return nil, fmt.Errorf("enricher: results/%d: %w", i, err)
			}
			t := byKey[key]
			if t == nil {
				t = newTarget(contracts.EnrichJob{
					Provider: name, PlaceID: r.PlaceID, RequestID: requestID, Name: r.Name, Address: r.Address,
					CityText: cmp.Or(r.CityText, req.CityText), Location: r.Location, Phone: r.Phone,
				}, key)
				byKey[key] = t
				list = append(list, t)
			}
			t.results = append(t.results, i)
		}
	}
	return list, nil
}

func newTarget(job contracts.EnrichJob, key string) *target {
	return &target{job: job, key: key, state: contracts.PendingState()}
}

// learn takes over what a slot says. It reports an error for a result that cannot be read, and knows nothing then.
func (t *target) learn(slot flight.Slot) error {
	t.seen = slot
	t.state, t.settled = contracts.PendingState(), false
	if slot.State != flight.Done {
		return nil
	}
	state, err := readState(slot.Value)
	if err != nil {
		return fmt.Errorf("enricher: slot %q at revision %d: %w", slot.Key, slot.Revision, err)
	}
	t.state, t.settled = state, true
	return nil
}

// answered reports whether the look-up has an answer: FOUND or NOT_FOUND.
func (t *target) answered() bool { return t.settled && t.state.Status != contracts.StatusPending }

// readState reads the part of a result that the outside sees, and leaves the evidence alone: it is on the path of every
// hit.
func readState(value []byte) (contracts.ProviderState, error) {
	var r struct {
		Outcome contracts.Outcome        `json:"outcome"`
		Status  contracts.ProviderStatus `json:"status"`
		URL     *string                  `json:"url"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return contracts.ProviderState{}, fmt.Errorf("result is not JSON: %w", err)
	}
	state := contracts.EnrichResult{Outcome: r.Outcome, Status: r.Status, URL: r.URL}.State()
	if err := state.Validate(); err != nil {
		return contracts.ProviderState{}, fmt.Errorf("result is invalid: %w", err)
	}
	return state, nil
}
