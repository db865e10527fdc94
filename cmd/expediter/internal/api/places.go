package api

import (
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Place is a place of a request to the enricher, with its states.
type Place struct {
	PlaceID   string                             `json:"placeId"`
	Providers map[string]contracts.ProviderState `json:"providers"`
}

// Places returns the places whose states are in an event of the enricher.
func Places(e Event) ([]Place, error) {
	var event struct {
		Places []Place `json:"places"` // of a snapshot

		PlaceID string `json:"placeId"`
		Patch   Place  `json:"patch"`
	}
	if err := json.Unmarshal(e.Data, &event); err != nil {
		return nil, fmt.Errorf("read an event of the enricher: %w", err)
	}
	if e.Kind == contracts.TypeResultPatch {
		event.Patch.PlaceID = event.PlaceID
		event.Places = []Place{event.Patch}
	}
	return event.Places, nil
}
