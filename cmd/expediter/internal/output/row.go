package output

import "encoding/json"

// Row is the result for one place.
type Row struct {
	// Name is the place's name as it was given.
	Name string

	// Place is the enriched place with every field that was passed through; left out of JSON when nil, and not part of
	// the other formats.
	Place json.RawMessage

	// PlaceID identifies the place.
	PlaceID string

	// Reason says why a place is still pending, such as "ambiguous" or "timeout"; empty otherwise.
	Reason string

	// Score is how sure the matcher was, 0 to 1; nil when it is not known.
	Score *float64

	// Status is FOUND, NOT_FOUND or PENDING.
	Status string

	// URL is the place's page when Status is FOUND, empty otherwise.
	URL string

	// Venue is the provider's name for the place, or for the best one that was not taken; empty when it is not known.
	Venue string

	// VenueID is the provider's own id of that venue; empty when it is not known.
	VenueID string
}

// wireRow is a row in JSON: every column is always there, and null when it is unknown.
type wireRow struct {
	PlaceID string          `json:"placeId"`
	Name    string          `json:"name"`
	Status  string          `json:"status"`
	URL     *string         `json:"url"`
	Score   *float64        `json:"score"`
	VenueID *string         `json:"venueId"`
	Venue   *string         `json:"venue"`
	Reason  *string         `json:"reason"`
	Place   json.RawMessage `json:"place,omitempty"`
}

func (r Row) wire() wireRow {
	return wireRow{
		PlaceID: r.PlaceID, Name: r.Name, Status: r.Status, URL: orNull(r.URL), Score: r.Score,
		VenueID: orNull(r.VenueID), Venue: orNull(r.Venue), Reason: orNull(r.Reason), Place: r.Place,
	}
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
