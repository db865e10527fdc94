package contracts

import (
	"maps"
	"slices"
	"strconv"

	"github.com/expediter-io/expediter/pkg/contracts/internal/strictjson"
)

// TypeResultPatch is the type of a ResultPatch frame.
const TypeResultPatch = "RESULT_PATCH"

// ResultPatch is the frame that updates an earlier answer, over WebSocket and as the data of an SSE event.
type ResultPatch struct {
	// Type is TypeResultPatch.
	Type string `json:"type"`
	// RequestID is the id of the request whose answer changes.
	RequestID string `json:"requestId" jsonschema:"minLength=1,maxLength=320"`
	// PlaceID is the place id of the restaurant that changes.
	PlaceID string `json:"placeId" jsonschema:"minLength=1,maxLength=320"`
	// Patch is what to merge into the restaurant.
	Patch Patch `json:"patch" wire:"present"`
}

// Patch is merged into a restaurant: its providers into those of the restaurant, and wolt over wolt.
type Patch struct {
	// Providers holds the state of each provider that changed, by name.
	Providers map[string]ProviderState `json:"providers"`
	// Wolt repeats providers.wolt for readers of the deprecated field, while the migration lasts.
	Wolt *ProviderState `json:"wolt,omitempty"`
}

// NewResultPatch makes the frame for one provider's state. deprecated adds the field wolt, for ProviderWolt.
func NewResultPatch(requestID, placeID, provider string, state ProviderState, deprecated bool) ResultPatch {
	patch := Patch{Providers: map[string]ProviderState{provider: state}}
	if deprecated && provider == ProviderWolt {
		patch.Wolt = &state
	}
	return ResultPatch{Type: TypeResultPatch, RequestID: requestID, PlaceID: placeID, Patch: patch}
}

// Validate checks the frame and every state in it.
func (p ResultPatch) Validate() error {
	var c checks
	c.oneOf("/type", p.Type, TypeResultPatch)
	c.id("/requestId", p.RequestID)
	c.id("/placeId", p.PlaceID)
	if len(p.Patch.Providers) == 0 {
		c.add("/patch/providers", "is required")
	}
	if len(p.Patch.Providers) > MaxProviders {
		c.add("/patch/providers", "has more than "+strconv.Itoa(MaxProviders)+" members")
		return c.err("ResultPatch")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Patch.Providers)) {
		path := strictjson.Pointer("/patch/providers", name)
		c.name(path, name)
		c.nest(path, p.Patch.Providers[name].Validate())
	}
	if p.Patch.Wolt != nil {
		c.nest("/patch/wolt", p.Patch.Wolt.Validate())
	}
	return c.err("ResultPatch")
}
