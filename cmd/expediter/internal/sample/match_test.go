package sample

import (
	"fmt"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

// unsure are the places that a careful person decides and the matcher does not dare to, by name. It gives no wrong link
// for them, only none.
var unsure = map[string]string{
	"Diwan al-Zaytoun": "Paulus VI and Paulus HaShishi are taken for two streets",
}

// Every place is looked up as the enricher does it. A link to the wrong venue is never acceptable.
func TestMatcherAgreesWithTruth(t *testing.T) {
	t.Parallel()
	s := load(t)
	venues, err := catalog.Read(Catalog(), catalog.Config{})
	check.OK(t, err)
	for _, p := range s.Places {
		query := match.Place{Address: p.Address, City: p.CityText, Name: p.Name, Phone: p.Phone}
		if p.Location != nil {
			query.Location = &match.Point{Lat: p.Location.Lat, Lng: p.Location.Lng}
		}
		candidates, err := venues.Search(t.Context(), query)
		check.OK(t, err)
		decision := match.Best(query, provider.Places(candidates))
		got := Truth{Outcome: contracts.Outcome(decision.Outcome)}
		best := "nothing"
		if decision.Index >= 0 {
			best = fmt.Sprintf("%s, %s", candidates[decision.Index].Name, candidates[decision.Index].Address)
		}
		if decision.Outcome == match.Found {
			got.VenueID = candidates[decision.Index].ID
		}
		why, abstains := unsure[p.Name]
		switch want := s.Truth[p.PlaceID]; {
		case got == want && abstains:
			t.Logf("%s is decided now: take it off the list", p.Name)
		case got == want || abstains && decision.Outcome != match.Found:
		default:
			t.Errorf("%s, %s: got %s %s (%.3f, margin %.2f: %s), want %s %s %s",
				p.Name, p.Address, got.Outcome, got.VenueID, decision.Score, decision.Margin, best, want.Outcome, want.VenueID, why)
		}
	}
}
