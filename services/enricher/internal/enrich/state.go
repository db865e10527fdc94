package enrich

import (
	"github.com/expediter-io/expediter/internal/strictjson"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// readState returns the State of an encoded contracts.EnrichResult. Each hit calls it, so it reads no further than it has to, and skips the
// evidence.
func readState(result []byte) (contracts.ProviderState, error) {
	var values [3][]byte
	if err := strictjson.Pick(values[:], result, "status", "url", "outcome"); err != nil {
		return contracts.ProviderState{}, contracts.Mistake("EnrichResult", "", err.Error())
	}
	status, _ := strictjson.Text(values[0], string(contracts.StatusFound), string(contracts.StatusNotFound))
	outcome, _ := strictjson.Text(values[2], string(contracts.OutcomeFound), string(contracts.OutcomeNotFound))
	r := contracts.EnrichResult{Status: contracts.ProviderStatus(status), Outcome: contracts.Outcome(outcome)}
	if url, ok := strictjson.Text(values[1]); ok {
		r.URL = &url
	}
	state := r.State()
	return state, state.Validate()
}

// newResultPatch makes the frame for one provider's state. deprecated adds the field wolt, for contracts.ProviderWolt.
func newResultPatch(requestID, placeID, provider string, state contracts.ProviderState, deprecated bool) contracts.ResultPatch {
	patch := contracts.Patch{Providers: map[string]contracts.ProviderState{provider: state}}
	if deprecated && provider == contracts.ProviderWolt {
		patch.Wolt = &state
	}
	return contracts.ResultPatch{Type: contracts.TypeResultPatch, RequestID: requestID, PlaceID: placeID, Patch: patch}
}
