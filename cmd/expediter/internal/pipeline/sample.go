package pipeline

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

var (
	//go:embed catalog.json
	catalogJSON []byte

	//go:embed places.json
	placesJSON []byte

	//go:embed requests.json
	requestsJSON []byte
)

// Sample is the sample, decoded.
type Sample struct {
	Places   []contracts.Restaurant    // all places, each once, in the order of the file
	Queries  []string                  // the words of each of the Requests, as typed by a person
	Requests []contracts.EnrichRequest // the searches; they overlap: every place is asked for more than once
}

// search is a request in requests.json, with the ids of its places instead of the places.
type search struct {
	CityText  string   `json:"cityText"`
	PlaceIDs  []string `json:"placeIds"`
	Query     string   `json:"query"` // as typed
	RequestID string   `json:"requestId"`
}

// Catalog returns the catalogue as a file in JSON, each time from its beginning.
func Catalog() io.Reader { return bytes.NewReader(catalogJSON) }

// Load decodes the sample. Every call returns a new copy. An error is a mistake in the built-in files.
func Load() (Sample, error) {
	var s Sample
	var searches []search
	if err := errors.Join(json.Unmarshal(placesJSON, &s.Places), json.Unmarshal(requestsJSON, &searches)); err != nil {
		return Sample{}, fmt.Errorf("sample: %w", err)
	}
	byID := make(map[string]contracts.Restaurant, len(s.Places))
	for _, p := range s.Places {
		byID[p.PlaceID] = p
	}
	for _, search := range searches {
		req := contracts.EnrichRequest{CityText: search.CityText, RequestID: search.RequestID}
		for _, id := range search.PlaceIDs {
			place, ok := byID[id]
			if !ok {
				return Sample{}, fmt.Errorf("sample: %s asks for place %q, which does not exist", search.RequestID, id)
			}
			if place.Location != nil { // a plain copy would share the location
				at := *place.Location
				place.Location = &at
			}
			req.Results = append(req.Results, place)
		}
		s.Queries, s.Requests = append(s.Queries, search.Query), append(s.Requests, req)
	}
	return s, nil
}

//go:embed rules.yaml
var rules []byte

// Rules are rules of a notifier whose only channel is the inbox.
func Rules() []byte { return slices.Clone(rules) }

// Event is an event of which the rules notify the staff of the restaurant, and the guest.
const Event = `{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,` +
	`"user_id":"carla","payload":{"guests":4}}`

// Restaurant is the restaurant of the sample's recipients.
var Restaurant = recipient.Member{Type: "RESTAURANT", ID: "5"}

// Recipients returns some recipients of each kind in the rules. All belong to Restaurant.
func Recipients() []contracts.Recipient {
	return []contracts.Recipient{
		{RecipientType: "RESTAURANT_USER", UserID: "ada", Locale: "en"},
		{RecipientType: "RESTAURANT_USER", UserID: "ben", Locale: "he", TimeZone: "Asia/Jerusalem"},
		{RecipientType: "CUSTOMER", UserID: "carla", Locale: "it", TimeZone: "Europe/Rome"},
		{RecipientType: "AGENCY_USER", UserID: "dov"},
		{RecipientType: "ADMIN", UserID: "eva"},
	}
}

//go:embed videos
var videos embed.FS

// Videos returns the files of a site with recipes: captions of videos, a page with a recipe as data, and files without a
// recipe. All were written for this sample.
func Videos() fs.FS {
	sub, err := fs.Sub(videos, "videos")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return sub
}
