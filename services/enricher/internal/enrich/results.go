package enrich

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Results returns what look-ups of the places of a request came to, with score and evidence, by place id. Places without a result,
// or with one that cannot be read, are left out. One round trip for each 512 places, and as many for those that were described
// otherwise before.
func (s *Service) Results(ctx context.Context, provider string, req contracts.EnrichRequest) (map[string]contracts.EnrichResult, error) {
	all, err := targets(req, "", []string{provider})
	if err == nil {
		err = s.read(ctx, all)
	}
	if err != nil {
		return nil, fmt.Errorf("enricher: read results: %w", err)
	}
	results := make(map[string]contracts.EnrichResult, len(all))
	for _, t := range all {
		var result contracts.EnrichResult
		if t.settled && json.Unmarshal(t.seen().Value, &result) == nil {
			results[t.job.PlaceID] = result
		}
	}
	return results, nil
}
