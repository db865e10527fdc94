package wolttest

import (
	"bytes"
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
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

// Fault is one way in which the API has been seen to fail, or may.
type Fault struct {
	// Name is a word for it, in test names and reports.
	Name string

	serve func(x exchange)
}

// exchange is a call to be answered badly. body is the right answer.
type exchange struct {
	body []byte
	quit <-chan struct{}
	r    *http.Request
	w    http.ResponseWriter
}

// Faults returns every fault once: a bad year.
func Faults() []Fault {
	return []Fault{
		StatusRetryAfter(http.StatusTooManyRequests, "7"),
		Status(http.StatusTooManyRequests),
		Status(430),
		Status(http.StatusGone),
		Status(http.StatusForbidden),
		Status(http.StatusNotFound),
		Status(http.StatusInternalServerError),
		Status(http.StatusServiceUnavailable),
		Status(http.StatusNoContent),
		Redirect("http://elsewhere.invalid/"),
		Empty(),
		NoContent(),
		HTML(),
		Hang(),
		{"truncated", func(x exchange) { writeJSON(x.w, x.body[:len(x.body)/2]) }},
		{"broken off", func(x exchange) { // before its Content-Length
			x.w.Header().Set("Content-Length", strconv.Itoa(len(x.body)))
			x.half()
			panic(http.ErrAbortHandler)
		}},
		{"disconnect", func(exchange) { panic(http.ErrAbortHandler) }},
		{"hang in body", func(x exchange) {
			x.half()
			x.hang()
		}},
		{"oversized", func(x exchange) { writeJSON(x.w, slices.Concat(x.body, bytes.Repeat([]byte(" "), 16<<20))) }},
		body("without sections", `{"name":"search","sections":[]}`),
		body("without items", `{"sections":[{"name":"venues","template":"venue-vertical-list","title":"Venues"}]}`),
		body("without venues", `{"sections":[{"name":"venues","template":"venue-vertical-list","items":[`+
			`{"template":"venue-small","title":"Pizza House","track_id":"venue-1"}]}]}`),
	}
}

// Empty is a 200 with nothing in it, as it is given to clients that are not trusted.
func Empty() Fault {
	return Fault{"empty 200", func(x exchange) { x.w.WriteHeader(http.StatusOK) }}
}

// Hang is a call that is never answered.
func Hang() Fault {
	return Fault{"hang", func(x exchange) { x.hang() }}
}

// HTML is a page for people, with status 200.
func HTML() Fault {
	return Fault{"html", func(x exchange) {
		x.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = x.w.Write([]byte("<!DOCTYPE html>\n<html><head><title>Just a moment...</title></head><body></body></html>\n"))
	}}
}

// NoContent is a 200 whose only section says that there is nothing here.
func NoContent() Fault {
	return body("no-content", `{"created":{"$date":1745777425702},"expires_in_seconds":900,"name":"search","sections":[`+
		`{"description":"We're working hard to expand","link":{"target":"","type":"no-link"},`+
		`"name":"no-content","template":"no-content","title":"There aren't any restaurants near you yet"}]}`)
}

// Redirect sends the client elsewhere.
func Redirect(to string) Fault {
	return Fault{"redirect", func(x exchange) { http.Redirect(x.w, x.r, to, http.StatusTemporaryRedirect) }}
}

// Status is an answer with that status and an error in words.
func Status(status int) Fault { return StatusRetryAfter(status, "") }

// StatusRetryAfter is an answer with that status and that Retry-After, or with none if it is empty.
func StatusRetryAfter(status int, retryAfter string) Fault {
	return Fault{strings.TrimSpace(strconv.Itoa(status) + " " + retryAfter), func(x exchange) {
		if retryAfter != "" {
			x.w.Header().Set("Retry-After", retryAfter)
		}
		x.w.Header().Set("Content-Type", "application/json")
		x.w.WriteHeader(status)
		_, _ = x.w.Write([]byte(`{"error_code":` + strconv.Itoa(status) + `,"msg":"no"}`))
	}}
}

// Body is a 200 with any body.
func Body(content string) Fault { return body("body", content) }

func body(name, content string) Fault {
	return Fault{name, func(x exchange) { writeJSON(x.w, []byte(content)) }}
}

// half sends half of the right answer.
func (x exchange) half() {
	_, _ = x.w.Write(x.body[:len(x.body)/2])
	_ = http.NewResponseController(x.w).Flush()
}

func (x exchange) hang() {
	select {
	case <-x.r.Context().Done():
	case <-x.quit:
	}
}
