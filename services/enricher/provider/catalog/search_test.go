package catalog_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// TestCandidatesHoldWhatTheMatcherWouldFind compares the candidates with the venue that the matcher takes
// when it sees every venue.
func TestCandidatesHoldWhatTheMatcherWouldFind(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{500, 2000} {
		venues := town(rng, size)
		c := stocked(t, venues)
		all := make([]*match.Prepared, len(venues))
		for i, v := range venues {
			all[i] = match.Prepare(v.Place)
		}
		found, missed := 0, 0
		for range 100 {
			place := retold(rng, venues[rng.IntN(len(venues))].Place)
			best := match.Prepare(place).Best(all)
			if best.Outcome != match.Found {
				continue
			}
			found++
			if !holds(find(t, c, place), venues[best.Index].ID) {
				missed++
				t.Logf("missed %+v for %+v", venues[best.Index].Place, place)
			}
		}
		t.Logf("%d venues: %d of %d found are among the candidates", size, found-missed, found)
		check.That(t, found >= 50 && missed*50 <= found, "%d of %d matches are not among the candidates of %d venues", missed, found, size)
	}
}

func holds(venues []provider.Venue, id string) bool {
	return slices.ContainsFunc(venues, func(v provider.Venue) bool { return v.ID == id })
}

// TestEachAgreementFindsAVenue wants a venue found by any one thing that is known of it.
func TestEachAgreementFindsAVenue(t *testing.T) {
	t.Parallel()
	venues := town(rand.New(rand.NewPCG(1, 2)), 500)
	want := provider.Venue{ID: "wanted", Place: match.Place{
		Address: "Yehuda HaLevi 205", City: "Tel Aviv", Location: &match.Point{Lat: 32.5, Lng: 34.9}, Name: "Quattrocento", Phone: "03-555-0199",
	}}
	c := stocked(t, append(venues, want))
	tests := map[string]match.Place{
		"name":             {Name: "quattrocento"},
		"word of the name": {Name: "Quattrocento by the Sea"},
		"misspelt name":    {Name: "Quatrocenta"},
		"other script":     {Name: "קוואטרוצ'נטו"},
		"telephone":        {Name: "Moses", Phone: "+972 3 5550199"},
		"address":          {Name: "Moses", Address: "205 Yehuda Halevi St."},
		"neighbourhood":    {Name: "Moses", Location: &match.Point{Lat: 32.5004, Lng: 34.9004}},
		"a cell to the SW": {Name: "Moses", Location: &match.Point{Lat: 32.4996, Lng: 34.8996}},
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.That(t, holds(find(t, c, place), "wanted"), "not among the candidates for %+v", place)
		})
	}
}

func TestNearestOfAChainComeFirst(t *testing.T) {
	t.Parallel()
	var venues []provider.Venue
	for i := range 500 {
		lat := 29.5 + 0.01*float64(i*7%500)
		venues = append(venues, provider.Venue{
			ID: strconv.Itoa(i), Place: match.Place{Name: "Golda", Location: &match.Point{Lat: lat, Lng: 34.9}},
		})
	}
	c := stocked(t, venues)
	got := find(t, c, match.Place{Name: "Golda", Location: &match.Point{Lat: 32, Lng: 34.9}})
	check.Require(t, len(got) == 50, "%d candidates, want 50", len(got))
	for i, v := range got {
		if d := v.Location.Lat - 32; d < -0.2501 || d > 0.2501 || (i == 0 && (d < -1e-9 || d > 1e-9)) {
			t.Errorf("candidate %d is at latitude %g", i, v.Location.Lat)
		}
	}
}

func TestUnknownPlaces(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,city,lat,lng\n1,Giraffe,Tel Aviv,32.07,34.78\n")
	got, err := c.Search(t.Context(), match.Place{Name: "Quattrocento", City: "Tel Aviv", Location: &match.Point{Lat: 31.7, Lng: 35.2}})
	check.That(t, err == nil && len(got) == 0, "Search = %v, %v; want the empty answer", got, err)
}

func TestSearchesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name\n1,Giraffe\n")
	got, err := c.Search(t.Context(), match.Place{City: "Tel Aviv"})
	check.That(t, provider.KindOf(err) == provider.KindUnsupported && !provider.Temporary(err) && got == nil,
		"Search for nothing = %v, %v; want unsupported", got, err)
}

// TestSearchesDoNotDisturbEachOther repeats searches from many goroutines, which use
// the same memory in turn.
func TestSearchesDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	venues := town(rand.New(rand.NewPCG(3, 4)), 300)
	c := stocked(t, venues)
	var want [][]provider.Venue
	for _, v := range venues {
		want = append(want, find(t, c, v.Place))
	}
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < len(venues); i += 2 {
				got, err := c.Search(t.Context(), venues[i].Place)
				check.That(t, err == nil && slices.EqualFunc(got, want[i], func(a, b provider.Venue) bool { return a.ID == b.ID }),
					"search %d differs from the first time: %v", i, err)
			}
		})
	}
	group.Wait()
}

// TestEndlessFieldsCostNoMoreThanLongOnes searches with fields that nobody writes. It
// would not end within the test's time if all pairs of words were looked at.
func TestEndlessFieldsCostNoMoreThanLongOnes(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,address\n1,Giraffe,Ibn Gabirol 49\n")
	place := match.Place{Address: strings.Repeat("49 b ", 1_000_000), Name: strings.Repeat("giraffe ", 1_000_000)}
	check.That(t, holds(find(t, c, place), "1"), "the venue is not among the candidates")
}
