package catalog_test

import (
	"bytes"
	_ "embed" // the words
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read loads a file that is expected to be good.
func read(t *testing.T, file string) *catalog.Catalog {
	t.Helper()
	return check.Must(catalog.Read(strings.NewReader(file), "shelf"))(t)
}

// stocked loads a file of the venues.
func stocked(t testing.TB, venues []provider.Venue) *catalog.Catalog {
	t.Helper()
	var file bytes.Buffer
	rows := json.NewEncoder(&file)
	for _, v := range venues {
		row := map[string]any{
			"id": v.ID, "name": v.Name, "address": v.Address, "aliases": v.Aliases, "city": v.City, "phone": v.Phone,
		}
		if v.Location != nil {
			row["location"] = map[string]float64{"lat": v.Location.Lat, "lng": v.Location.Lng}
		}
		check.OK(t, rows.Encode(row))
	}
	return check.Must(catalog.Read(&file, "shelf"))(t)
}

// find searches by name and wants one venue or more.
func find(t *testing.T, c *catalog.Catalog, place match.Place) []provider.Venue {
	t.Helper()
	venues := check.Must(c.Search(t.Context(), place))(t)
	check.Require(t, len(venues) != 0, "no candidates for %+v", place)
	return venues
}

// rowErrors are the bad rows of a file.
func rowErrors(t *testing.T, err error) []string {
	t.Helper()
	bad, ok := errors.AsType[*catalog.LoadError](err)
	check.Require(t, ok, "error = %v, want a *LoadError", err)
	return bad.Rows
}

//go:embed testdata/words.tsv
var wordsText string

// words are parts of names, in two scripts.
var words = slices.Collect(slices.Chunk(strings.Fields(wordsText), 2))

var streets = []string{
	"Dizengoff", "Ibn Gabirol", "Rothschild Blvd", "Allenby", "King George", "Ben Yehuda", "Bograshov", "Frishman", "Lilienblum",
	"Nahalat Binyamin", "HaArba'a", "Yirmiyahu", "Florentin", "Levinsky", "Salame Rd", "Herzl", "Ahad Ha'am", "Shenkin",
}

// town makes n venues of a city that is as dense as a real one, with chains.
func town(rng *rand.Rand, n int) []provider.Venue {
	venues := make([]provider.Venue, n)
	side := 0.0003 * float64(n) / 40 // A street's length grows with the town.
	for i := range venues {
		var latin, hebrew []string
		for range 1 + rng.IntN(3) {
			w := words[rng.IntN(len(words))]
			latin, hebrew = append(latin, w[0]), append(hebrew, w[1])
		}
		if n > 1000 { // Real names have rarer words too.
			latin = append(latin, coined(i))
		}
		venues[i] = provider.Venue{
			ID: strconv.Itoa(i),
			Place: match.Place{
				Address:  fmt.Sprintf("%s %d", streets[rng.IntN(len(streets))], 1+rng.IntN(200)),
				City:     "Tel Aviv",
				Location: &match.Point{Lat: 32.05 + side*rng.Float64(), Lng: 34.75 + side*rng.Float64()},
				Name:     strings.Join(latin, " "),
				Phone:    fmt.Sprintf("03-%07d", rng.IntN(10_000_000)),
			},
		}
		if rng.IntN(3) == 0 && n <= 1000 {
			venues[i].Aliases = []string{strings.Join(hebrew, " ")}
		}
	}
	return venues
}

// coined is a word that few other venues have.
func coined(i int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for i = i/3 + 7; i > 0; i /= len(consonants) * len(vowels) {
		b.WriteByte(consonants[i%len(consonants)])
		b.WriteByte(vowels[i/len(consonants)%len(vowels)])
	}
	return b.String()
}

// retold is a venue as another source tells of it.
func retold(rng *rand.Rand, place match.Place) match.Place {
	place.Aliases = nil
	if rng.IntN(3) == 0 {
		place.Phone = ""
	}
	if rng.IntN(4) == 0 {
		place.Address = ""
	} else if rng.IntN(3) == 0 {
		place.Address = strings.ToUpper(place.Address) + ", Tel Aviv-Yafo, Israel"
	}
	if rng.IntN(3) == 0 {
		place.Location = nil
	} else if place.Location != nil {
		place.Location = &match.Point{
			Lat: place.Location.Lat + (rng.Float64()-0.5)*0.0008, Lng: place.Location.Lng + (rng.Float64()-0.5)*0.0008,
		}
	}
	switch rng.IntN(6) {
	case 0: // a letter is lost
		if name := []rune(place.Name); len(name) > 4 {
			at := 1 + rng.IntN(len(name)-2)
			place.Name = string(name[:at]) + string(name[at+1:])
		}
	case 1: // two letters are swapped
		if name := []rune(place.Name); len(name) > 4 {
			at := 1 + rng.IntN(len(name)-3)
			name[at], name[at+1] = name[at+1], name[at]
			place.Name = string(name)
		}
	case 2: // the other script
		place.Name = inHebrew(place.Name)
	case 3:
		place.Name = "Restaurant " + place.Name
	case 4:
		place.Name += " - " + streets[rng.IntN(len(streets))]
	}
	return place
}

func inHebrew(name string) string {
	for _, w := range words {
		name = strings.ReplaceAll(name, w[0], w[1])
	}
	return name
}
