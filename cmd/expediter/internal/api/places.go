package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Enrich asks for places, and returns as many, with what is known of them.
func (c *Client) Enrich(ctx context.Context, req contracts.EnrichRequest) (answer contracts.EnrichResponse, err error) {
	body, err := contracts.Encode(req)
	if err != nil {
		return answer, err
	}
	var data []byte
	if _, err := c.Do(ctx, http.MethodPost, "/v1/enrich", nil, body, &data); err != nil {
		return answer, err
	}
	answer, err = contracts.Decode[contracts.EnrichResponse](data)
	if err == nil && len(answer.Results) != len(req.Results) {
		err = fmt.Errorf("it has %d places, %d were asked for", len(answer.Results), len(req.Results))
	}
	if err != nil {
		return answer, fmt.Errorf("the answer of %s: %w", c.URL, err)
	}
	return answer, nil
}

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
