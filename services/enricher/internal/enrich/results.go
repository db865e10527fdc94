package enrich

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// Results returns what look-ups of places came to, with score and evidence, by place id. Places without a result, or
// with one that cannot be read, are left out. One round trip for each 512 places.
func (s *Service) Results(ctx context.Context, provider string, placeIDs []string) (map[string]contracts.EnrichResult, error) {
	keys := make([]string, len(placeIDs))
	for i, id := range placeIDs {
		key, err := contracts.EnrichSlotKey(provider, id)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	slots, err := s.flight.GetMany(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("enricher: read results: %w", err)
	}
	results := make(map[string]contracts.EnrichResult, len(slots))
	for i, slot := range slots {
		var result contracts.EnrichResult
		if slot.State == flight.Done && json.Unmarshal(slot.Value, &result) == nil {
			results[placeIDs[i]] = result
		}
	}
	return results, nil
}
