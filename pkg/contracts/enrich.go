package contracts

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/expediter-io/expediter/internal/strictjson"
)

const (
	// maxResults is the largest number of restaurants in one request: five pages of twenty, as many as a search shows, in far less than
	// MaxBody.
	maxResults = 100
	// maxProviders is the largest number of providers in one request.
	maxProviders = 16
	// maxVariant is the number of the last variant of a place, see EnrichJob.
	maxVariant = 15
	// MaxWait is the longest time a request may ask to wait for results.
	MaxWait = time.Minute
)

// EnrichRequest asks for the delivery links of some restaurants.
type EnrichRequest struct {
	// RequestID names the request; subscribers to its patches use it. Optional: the service makes one when it is empty.
	RequestID string `json:"requestId,omitempty" jsonschema:"maxLength=320"`
	// CityText is the city of the search, as a person wrote it; optional.
	CityText string `json:"cityText,omitempty" jsonschema:"maxLength=1024,nullable"`
	// Providers names the providers to ask. Defaults to all that the service has.
	Providers []string `json:"providers,omitempty" jsonschema:"maxItems=16,nullable"`
	// Results are the restaurants, at most 100; may be empty but not absent.
	Results []Restaurant `json:"results" jsonschema:"maxItems=100"`
	// WaitMS is how long, in milliseconds, the answer may wait for results, up to MaxWait. Defaults to 0: the
	// answer comes at once and PENDING results follow as patches.
	WaitMS int `json:"waitMs,omitempty" jsonschema:"minimum=0,maximum=60000"`
}

// Validate checks every restaurant and the bounds of the whole.
func (r EnrichRequest) Validate() error {
	var c checks
	c.optionalID("/requestId", r.RequestID)
	c.text("/cityText", r.CityText)
	c.over("/providers", len(r.Providers), maxProviders, "items")
	for i, provider := range r.Providers {
		c.name("/providers/"+strconv.Itoa(i), provider)
	}
	c.restaurants(r.Results)
	if r.WaitMS < 0 || r.WaitMS > int(MaxWait/time.Millisecond) {
		c.add("/waitMs", "must be between 0 and "+strconv.Itoa(int(MaxWait/time.Millisecond)))
	}
	return c.In("EnrichRequest")
}

// AppendJSON appends the request to dst and keeps the unknown members of its restaurants byte for byte.
func (r EnrichRequest) AppendJSON(dst []byte) ([]byte, error) {
	type plain EnrichRequest
	envelope := plain(r)
	envelope.Results = nil
	return appendWithResults(dst, envelope, r.Results)
}

// EnrichResponse is the answer to an EnrichRequest: the same restaurants in the same order, each with a state for each
// provider. It is also the first message that a late subscriber of the request gets.
type EnrichResponse struct {
	// RequestID names the request; patches carry the same.
	RequestID string `json:"requestId" jsonschema:"minLength=1,maxLength=320"`
	// Results are the restaurants of the request.
	Results []Restaurant `json:"results" jsonschema:"maxItems=100"`
	// Pending is how many states are PENDING, and so how many patches may still come.
	Pending int `json:"pending" jsonschema:"minimum=0"`
	// Skipped is the reason when no place of the request was looked up: "flag_disabled", "no_results", "store_down" or
	// "store_full". Empty otherwise. After the last two nobody can subscribe to the patches of the request.
	Skipped string `json:"skipped,omitempty" jsonschema:"pattern=^[A-Za-z0-9_-]*$,maxLength=64"`
}

// Validate checks the answer like a request.
func (r EnrichResponse) Validate() error {
	var c checks
	c.id("/requestId", r.RequestID)
	c.restaurants(r.Results)
	c.Add(r.Pending < 0, "/pending", "is required, and must not be negative")
	c.optionalName("/skipped", r.Skipped)
	return c.In("EnrichResponse")
}

// UnmarshalJSONFrom reads an answer. One without "pending", which must not count as complete, has -1.
func (r *EnrichResponse) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain EnrichResponse
	read := plain{Pending: -1}
	err := jsonv2.UnmarshalDecode(dec, &read)
	*r = EnrichResponse(read)
	return err
}

// AppendJSON appends the answer to dst and keeps the unknown members of its restaurants byte for byte.
func (r EnrichResponse) AppendJSON(dst []byte) ([]byte, error) {
	type plain EnrichResponse
	envelope := plain(r)
	envelope.Results = nil
	return appendWithResults(dst, envelope, r.Results)
}

// EnrichJob is the job to look one place up at one provider.
type EnrichJob struct {
	// Provider is the provider to ask.
	Provider string `json:"provider" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_-]+$"`
	// PlaceID identifies the place.
	PlaceID string `json:"placeId" jsonschema:"minLength=1,maxLength=320"`
	// RequestID is the request that caused the job; others may wait for the same result.
	RequestID string `json:"requestId" jsonschema:"minLength=1,maxLength=320"`
	// Claim is the id of the claim on the place's entry, which the worker resumes.
	Claim string `json:"claim" jsonschema:"minLength=1,maxLength=320"`
	// Name is the name of the place.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=1024"`
	// Address is the postal address in one line; optional.
	Address string `json:"address,omitempty" jsonschema:"maxLength=1024"`
	// CityText is the city as a person wrote it; optional.
	CityText string `json:"cityText,omitempty" jsonschema:"maxLength=1024,nullable"`
	// Location is where the place is; optional.
	Location *Location `json:"location,omitempty"`
	// Phone is a telephone number in any notation; optional.
	Phone string `json:"phone,omitempty" jsonschema:"maxLength=1024"`
	// RequestedAt is when the job was made.
	RequestedAt time.Time `json:"requestedAt,omitzero"`
	// Variant is the number of the entry that the claim is on: 0 for the first, 1 to 15 for other
	// descriptions of the place. Defaults to 0.
	Variant int `json:"variant,omitempty" jsonschema:"minimum=0,maximum=15"`
}

// Validate checks all fields.
func (j EnrichJob) Validate() error {
	var c checks
	c.name("/provider", j.Provider)
	c.id("/placeId", j.PlaceID)
	c.id("/requestId", j.RequestID)
	c.id("/claim", j.Claim)
	c.requiredText("/name", j.Name)
	c.text("/address", j.Address)
	c.text("/cityText", j.CityText)
	if j.Location != nil {
		c.nest("/location", j.Location.Validate())
	}
	c.text("/phone", j.Phone)
	c.timestamp("/requestedAt", j.RequestedAt)
	if j.Variant < 0 || j.Variant > maxVariant {
		c.add("/variant", "must be between 0 and "+strconv.Itoa(maxVariant))
	}
	return c.In("EnrichJob")
}

// Venue is the provider's side of a match.
type Venue struct {
	// ID is the provider's own id.
	ID string `json:"id,omitempty" jsonschema:"maxLength=320"`
	// Name is the venue's name at the provider.
	Name string `json:"name,omitempty" jsonschema:"maxLength=1024"`
	// Address is the venue's address at the provider.
	Address string `json:"address,omitempty" jsonschema:"maxLength=1024"`
	// City is the venue's city at the provider.
	City string `json:"city,omitempty" jsonschema:"maxLength=1024"`
	// URL is the venue's page.
	URL string `json:"url,omitempty" jsonschema:"format=uri,maxLength=2048"`
}

// EnrichResult is the value of an entry when its look-up has ended. Its first three fields are those that readers of the
// plain cache entry {"status","url","updatedAt"} expect; the others explain the outcome.
type EnrichResult struct {
	// Status is the outcome as clients see it.
	Status ProviderStatus `json:"status" jsonschema:"enum=PENDING,enum=FOUND,enum=NOT_FOUND"`
	// URL is the place's page when Status is FOUND, nil otherwise.
	URL *string `json:"url" jsonschema:"format=uri,maxLength=2048,nullable"`
	// UpdatedAt is when the look-up ended.
	UpdatedAt time.Time `json:"updatedAt"`
	// Outcome is how the look-up ended. Defaults to Status: older entries have no Outcome.
	Outcome Outcome `json:"outcome,omitempty" jsonschema:"enum=FOUND,enum=NOT_FOUND,enum=AMBIGUOUS,enum=ERROR"`
	// Score is the matcher's confidence in the venue, 0 to 1.
	Score float64 `json:"score,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Evidence is the comparison that the matcher made, in a form that only the matcher defines.
	Evidence json.RawMessage `json:"evidence,omitempty"`
	// Venue is the chosen venue, or the best one if none was chosen.
	Venue *Venue `json:"venue,omitempty"`
	// Matcher is the version of the matcher.
	Matcher string `json:"matcher,omitempty" jsonschema:"maxLength=1024"`
}

// State returns the provider state that clients see: without score and evidence, and with a reason when the look-up
// ended without an answer.
func (r EnrichResult) State() ProviderState {
	state := ProviderState{Status: r.Status, URL: r.URL}
	switch r.Outcome {
	case OutcomeAmbiguous:
		state.Reason = reasonAmbiguous
	case OutcomeError:
		state.Reason = reasonProviderError
	case OutcomeFound, OutcomeNotFound:
	}
	return state
}

// Validate checks the fields and that outcome, status and url agree.
func (r EnrichResult) Validate() error {
	var c checks
	c.nest("", ProviderState{Status: r.Status, URL: r.URL}.Validate())
	c.requiredTime("/updatedAt", r.UpdatedAt)
	if r.Outcome != "" {
		c.oneOf("/outcome", string(r.Outcome), string(OutcomeFound), string(OutcomeNotFound),
			string(OutcomeAmbiguous), string(OutcomeError))
		c.Add(r.Outcome.Status() != r.Status, "/outcome", "does not go with status")
	}
	c.Add(!(r.Score >= 0 && r.Score <= 1), "/score", "must be between 0 and 1")
	c.opaque("/evidence", r.Evidence)
	if r.Venue != nil {
		c.optionalID("/venue/id", r.Venue.ID)
		c.text("/venue/name", r.Venue.Name)
		c.text("/venue/address", r.Venue.Address)
		c.text("/venue/city", r.Venue.City)
		if r.Venue.URL != "" {
			c.url("/venue/url", r.Venue.URL)
		}
	}
	c.text("/matcher", r.Matcher)
	return c.In("EnrichResult")
}

func (c *checks) restaurants(results []Restaurant) {
	c.Add(results == nil, "/results", "is required")
	if c.over("/results", len(results), maxResults, "items") {
		return
	}
	for i := range results { // which are too large to be copied for nothing
		if err := results[i].Validate(); err != nil {
			c.nest("/results/"+strconv.Itoa(i), err)
		}
	}
}

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
	// Patch is to be merged into the restaurant.
	Patch Patch `json:"patch"`
}

// Patch is merged into a restaurant: its providers into those of the restaurant, and wolt over wolt.
type Patch struct {
	// Providers holds the state of each provider that changed, by name.
	Providers map[string]ProviderState `json:"providers"`
	// Wolt repeats providers.wolt for readers of the deprecated field, while the migration lasts.
	Wolt *ProviderState `json:"wolt,omitempty" jsonschema_extras:"deprecated=true"`
}

// Validate checks the frame and every state in it.
func (p ResultPatch) Validate() error {
	var c checks
	c.oneOf("/type", p.Type, TypeResultPatch)
	c.id("/requestId", p.RequestID)
	c.id("/placeId", p.PlaceID)
	c.Add(p.Patch.Providers == nil && p.Patch.Wolt == nil, "/patch", "is required")
	c.Add(len(p.Patch.Providers) == 0, "/patch/providers", "is required")
	if len(p.Patch.Providers) > maxProviders {
		c.add("/patch/providers", "has more than "+strconv.Itoa(maxProviders)+" members")
		return c.In("ResultPatch")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Patch.Providers)) {
		path := strictjson.Pointer("/patch/providers", name)
		c.name(path, name)
		c.nest(path, p.Patch.Providers[name].Validate())
	}
	if p.Patch.Wolt != nil {
		c.nest("/patch/wolt", p.Patch.Wolt.Validate())
	}
	return c.In("ResultPatch")
}
