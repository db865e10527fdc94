package provider_test

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// fixed is a third provider: it needs nothing but the two methods.
type fixed struct{ venues []provider.Venue }

func (fixed) Name() string { return "fixed" }

func (s fixed) Search(ctx context.Context, _ match.Place) ([]provider.Venue, error) {
	if err := ctx.Err(); err != nil {
		return nil, &provider.Error{Cause: err, Kind: provider.KindCanceled, Provider: "fixed"}
	}
	return s.venues, nil
}

func ExampleProvider() {
	var p provider.Provider = fixed{[]provider.Venue{
		{ID: "1", URL: "https://example.com/1", Place: match.Place{Name: "Sushi Bar", Address: "Herzl 3"}},
		{ID: "2", URL: "https://example.com/2", Place: match.Place{Name: "Giraffe", Address: "Ibn Gabirol 49"}},
	}}
	place := match.Place{Name: "Giraffe Noodle Bar", Address: "49 Ibn Gabirol St."}
	venues, err := p.Search(context.Background(), place)
	if err != nil {
		fmt.Println(err) // Not an answer: to be tried again, or given up.
		return
	}
	best := match.Best(place, provider.Places(venues))
	fmt.Println(best.Outcome, venues[best.Index].URL)
	// Output:
	// FOUND https://example.com/2
}
