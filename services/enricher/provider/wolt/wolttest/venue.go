package wolttest

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// How much the search gives out: the nearest venues of a metropolitan area.
const (
	maxDistance = 50 // km
	maxResults  = 100
)

// City is an entry of the list of cities.
type City struct {
	// Country is the country's ISO 3166-1 alpha-3 code.
	Country string

	// Lat and Lon are the middle of the city.
	Lat, Lon float64

	// Name is the city's name, Slug its segment of a link.
	Name, Slug string
}

// Venue is a venue that can be found.
type Venue struct {
	// Address, City and Country describe where it is; Country is alpha-3.
	Address, City, Country string

	// ID is 24 hexadecimal digits at the real API.
	ID string

	// Lat and Lon are its position. At 0,0 it is found from everywhere, and the
	// answer has no position.
	Lat, Lon float64

	// Name is its name in languages that Names has not.
	Name string

	// Names are its names by language.
	Names map[string]string

	// ProductLine is restaurant unless it is set.
	ProductLine string

	// Slug is its segment of a link.
	Slug string
}

// Cities returns a few cities, two of which share a name.
func Cities() []City {
	return []City{
		{Country: "ISR", Lat: 32.0853, Lon: 34.7818, Name: "Tel Aviv", Slug: "tel-aviv"},
		{Country: "ISR", Lat: 31.7683, Lon: 35.2137, Name: "Jerusalem", Slug: "jerusalem"},
		{Country: "ISR", Lat: 32.7940, Lon: 34.9896, Name: "Haifa", Slug: "haifa"},
		{Country: "FIN", Lat: 60.1699, Lon: 24.9384, Name: "Helsinki", Slug: "helsinki"},
		{Country: "DEU", Lat: 50.1109, Lon: 8.6821, Name: "Frankfurt", Slug: "frankfurt"},
		{Country: "DEU", Lat: 52.3471, Lon: 14.5506, Name: "Frankfurt", Slug: "frankfurt-oder"},
	}
}

// object is a JSON object.
type object = map[string]any

func citiesPage(cities []City) object {
	results := make([]object, len(cities))
	for i, c := range cities {
		results[i] = object{
			"country_code_alpha3": c.Country,
			"id":                  c.Slug,
			"location":            object{"type": "Point", "coordinates": []float64{c.Lon, c.Lat}},
			"name":                c.Name,
			"slug":                c.Slug,
			"timezone":            "UTC",
		}
	}
	return object{"results": results}
}

// searchPage finds the venues near a point whose name, in any language, has a word
// of the text in it, and answers with them by distance.
func searchPage(venues []Venue, text, language string, lat, lon float64) object {
	type near struct {
		distance float64
		venue    Venue
	}

	var hits []near

	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })

	for _, v := range venues {
		d := distance(v, lat, lon)
		if d <= maxDistance && v.named(words) {
			hits = append(hits, near{d, v})
		}
	}

	slices.SortStableFunc(hits, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })

	items := make([]object, 0, maxResults)
	for _, h := range hits[:min(len(hits), maxResults)] {
		items = append(items, h.venue.item(language))
	}
	return object{
		"created":            object{"$date": 1745777425702},
		"expires_in_seconds": 900,
		"name":               "search",
		"sections": []object{{
			"items": items, "name": "venues", "template": "venue-vertical-list", "title": "Venues",
		}},
		"track_id": "search",
	}
}

func (v Venue) named(words []string) bool {
	names := make([]string, 0, 1+len(v.Names))
	names = append(names, strings.ToLower(v.Name))

	for _, name := range v.Names {
		names = append(names, strings.ToLower(name))
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, word) })
	})
}

func (v Venue) item(language string) object {
	name := v.Name
	if own, ok := v.Names[language]; ok {
		name = own
	}

	venue := object{
		"address":      v.Address,
		"city":         v.City,
		"country":      v.Country,
		"delivers":     true,
		"franchise":    "",
		"id":           v.ID,
		"name":         name,
		"online":       true,
		"price_range":  2,
		"product_line": cmp.Or(v.ProductLine, "restaurant"),
		"rating":       object{"rating": 4, "score": 9.1},
		"slug":         v.Slug,
		"tags":         []string{},
	}
	if v.Lat != 0 || v.Lon != 0 {
		venue["location"] = []float64{v.Lon, v.Lat}
	}
	return object{
		"link":     object{"target": v.ID, "type": "venue-id"},
		"template": "venue-large",
		"title":    name,
		"track_id": "venue-" + v.Slug,
		"venue":    venue,
	}
}

// distance is how far a venue is from a point, in km on a flat earth.
func distance(v Venue, lat, lon float64) float64 {
	if v.Lat == 0 && v.Lon == 0 {
		return 0
	}

	const kmPerDegree = 111.2
	return kmPerDegree * math.Hypot(v.Lat-lat, (v.Lon-lon)*math.Cos(lat*math.Pi/180))
}
