package provider

import (
	"context"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// Provider is a source of delivery links.
type Provider interface {
	// Name is the provider's key in `providers.<name>`, in subjects, bucket keys,
	// logs and metrics: lower-case letters, digits and hyphens, a letter first. It
	// never changes.
	Name() string

	// Search returns the venues that may be the place: the candidates among which
	// the matcher decides.
	//
	// An empty list with a nil error says that the provider answered and knows no
	// such place, and nothing else says that. Whatever keeps the provider from
	// answering is an [*Error], also the end of ctx; then the list is nil. Every
	// venue has an ID, unique in the list, a name and a URL.
	//
	// Search is called from many goroutines at once.
	Search(ctx context.Context, place match.Place) ([]Venue, error)
}

// Venue is a place as a provider knows it.
type Venue struct {
	match.Place

	// Hash is the SHA-256 of the record as the provider sent it, in hexadecimal:
	// evidence of what the decision was made on.
	Hash string

	// ID is the provider's own identifier of the venue.
	ID string

	// Kind is the provider's product line, such as "restaurant", or empty when it
	// does not say.
	Kind string

	// URL is the venue's public page, where a customer orders.
	URL string
}

// Places returns the places of the venues in the same order: the form in which
// the matcher takes its candidates.
func Places(venues []Venue) []match.Place {
	places := make([]match.Place, len(venues))
	for i := range venues {
		places[i] = venues[i].Place
	}

	return places
}
