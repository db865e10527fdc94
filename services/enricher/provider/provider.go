package provider

import (
	"context"
	"time"

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
	// An empty list with a nil error means that the provider answered and has no such place. Nothing else means that.
	// Whatever keeps the provider from answering is an [*Error], also the end of ctx; then the list is nil. Every venue has
	// an ID, unique in the list, a name and a URL.
	//
	// Search is called from many goroutines at once.
	Search(ctx context.Context, place match.Place) ([]Venue, error)
}

// Limited is a Provider that may be asked only so much, by all processes together. The enricher keeps the searches to
// its Limits; the provider makes no call before its turn.
type Limited interface {
	Provider

	// Limits are the same in every process.
	Limits() Limits
}

// Limits bound the searches and calls of a provider.
type Limits struct {
	// Burst is how many calls may be made at once after a pause.
	Burst int

	// Gap is the time between two calls after that.
	Gap time.Duration

	// Searches is how many searches may be under way at a time.
	Searches int
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
