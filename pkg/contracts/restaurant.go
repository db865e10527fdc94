package contracts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/expediter-io/expediter/internal/strictjson"
)

// Location is a point on the WGS 84 ellipsoid in decimal degrees.
type Location struct {
	// Lat is the latitude, -90 to 90.
	Lat float64 `json:"lat" jsonschema:"minimum=-90,maximum=90"`
	// Lng is the longitude, -180 to 180.
	Lng float64 `json:"lng" jsonschema:"minimum=-180,maximum=180"`
}

// Validate checks the ranges.
func (l Location) Validate() error {
	var c checks
	c.coordinate("/lat", l.Lat, 90)
	c.coordinate("/lng", l.Lng, 180)
	return c.In("Location")
}

// UnmarshalJSONFrom reads a location. A coordinate that is not there is NaN, which Validate refuses: half a location is none.
func (l *Location) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var read struct {
		Lat *float64 `json:"lat"`
		Lng *float64 `json:"lng"`
	}
	if err := jsonv2.UnmarshalDecode(dec, &read); err != nil {
		return err
	}
	*l = Location{Lat: value(read.Lat), Lng: value(read.Lng)}
	return nil
}

func value(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

func (c *checks) coordinate(path string, x, most float64) {
	if math.IsNaN(x) {
		c.add(path, "is required")
	} else if x < -most || x > most {
		c.add(path, fmt.Sprintf("must be between %v and %v", -most, most))
	}
}

// Restaurant is one search result on its way through the enricher.
//
// The exported fields are those that matching needs. All other members of the sender's object are kept: names, order and values stay byte
// for byte as they came. So do numbers, known fields that did not change, and the states of other providers in "providers". Only white
// space between members is lost. Use Encode, or AppendJSON, to write one: encoding/json compacts and escapes the result of MarshalJSON.
//
// A Restaurant may be copied; a copy is independent. The restaurants of one message share a copy of its bytes: one of them keeps all in
// memory, at most MaxBody.
type Restaurant struct {
	// Address is the postal address in one line; optional.
	Address string
	// CityText is the city as a person wrote it; optional. Defaults to EnrichRequest.CityText.
	CityText string
	// Location is where the place is; nil when it is not known.
	Location *Location
	// Name is the name of the place.
	Name string
	// Phone is a telephone number in any notation; optional.
	Phone string
	// PlaceID identifies the place; any text of up to MaxID bytes.
	PlaceID string

	fields object
	read   restaurantFields
	readAt Location // the value of read.Location
}

// restaurantFields are the known fields as they were read, to find out which of them changed since.
type restaurantFields struct {
	Address  string    `json:"address"`
	CityText string    `json:"cityText"`
	Location *Location `json:"location"`
	Name     string    `json:"name"`
	Phone    string    `json:"phone"`
	PlaceID  string    `json:"placeId"`
}

// Validate checks the known fields.
func (r Restaurant) Validate() error {
	var c checks
	c.id("/placeId", r.PlaceID)
	c.requiredText("/name", r.Name)
	c.text("/address", r.Address)
	c.text("/cityText", r.CityText)
	c.text("/phone", r.Phone)
	if r.Location != nil {
		c.nest("/location", r.Location.Validate())
	}
	return c.In("Restaurant")
}

// State returns the restaurant's state for a provider: providers.<name>, or, for ProviderWolt only, the deprecated
// field wolt when providers.wolt is absent, null or unreadable. It returns false when there is neither. The state is as
// the sender wrote it and is not validated.
func (r Restaurant) State(provider string) (ProviderState, bool) {
	providers := object{members: strictjson.Members(r.fields.get("providers"))}
	if state, ok := readState(providers.get(provider)); ok {
		return state, true
	}
	if provider == ProviderWolt {
		return readState(r.fields.get(ProviderWolt))
	}
	return ProviderState{}, false
}

// SetState writes providers.<name> and, when deprecated is true and the provider is ProviderWolt, the
// deprecated field wolt with the same status and url. Other providers' states, and members of an earlier state
// that this package does not know, stay as they are.
func (r *Restaurant) SetState(provider string, state ProviderState, deprecated bool) {
	providers := object{members: strictjson.Members(r.fields.get("providers"))}
	earlier, deprecatedEarlier := providers.get(provider), r.fields.get(ProviderWolt)
	if !r.fields.bare {
		r.fields.split()
	}
	r.fields.members = append(make([]strictjson.Member, 0, len(r.fields.members)+2), r.fields.members...)
	var value []byte
	if len(providers.members) == 0 { // as nearly always: allocate once for all
		all := append(appendQuoted(append(make([]byte, 0, 160), '{'), provider), ':')
		begin := len(all)
		all = state.append(all)
		value = all[begin:len(all):len(all)]
		r.fields.put("providers", append(all, '}'))
	} else {
		value = state.over(earlier)
		providers.put(provider, value)
		r.fields.put("providers", providers.append(nil))
	}
	if deprecated && provider == ProviderWolt {
		if earlier != nil || deprecatedEarlier != nil {
			value = state.over(deprecatedEarlier)
		}
		r.fields.put(ProviderWolt, value)
	}
}

// Field returns the bytes of any member that the sender wrote, known or not, or nil. The caller must not
// change them.
func (r Restaurant) Field(name string) json.RawMessage { return r.fields.get(name) }

// Equal reports whether both have the same JSON.
func (r Restaurant) Equal(other Restaurant) bool {
	a, errA := r.AppendJSON(nil)
	b, errB := other.AppendJSON(nil)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// AppendJSON appends the restaurant to dst. Members keep the order in which they were read; known fields that were not
// there before come first. The error names the known field that has no JSON form (a NaN latitude).
func (r Restaurant) AppendJSON(dst []byte) ([]byte, error) {
	fields := r.fields
	now, read, at := r.known(), r.read, r.readAt
	if read.Location != nil { // the caller may have changed the location in place
		read.Location = &at
	}
	var first object
	for _, name := range knownFields {
		changed, value, err := now.compare(name, read)
		if err != nil {
			return dst, err
		}
		if !changed {
			continue
		}
		fields.split()
		switch {
		case value == nil:
			fields.remove(name)
		case fields.get(name) == nil:
			first.set(name, value)
		default:
			fields.set(name, value)
		}
	}
	if len(first.members) > 0 {
		fields.members = append(first.members, fields.members...)
	}
	return fields.append(dst), nil
}

// MarshalJSON is AppendJSON for encoding/json.
func (r Restaurant) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// UnmarshalJSON reads one restaurant with the rules of Decode, without validating it.
func (r *Restaurant) UnmarshalJSON(data []byte) error {
	var read Restaurant
	if invalid, _ := decodeInto(data, &read); invalid != nil {
		return invalid
	}
	*r = read
	return nil
}

func (r Restaurant) known() restaurantFields {
	return restaurantFields{
		Address: r.Address, CityText: r.CityText, Location: r.Location, Name: r.Name, Phone: r.Phone, PlaceID: r.PlaceID,
	}
}

// knownFields in the order in which a new restaurant is written.
var knownFields = [...]string{"placeId", "name", "address", "cityText", "location", "phone"}

// compare reports whether a known field differs from the value that was read, and returns its new value, nil when it is unset.
func (f restaurantFields) compare(name string, read restaurantFields) (changed bool, value []byte, err error) {
	if name == "location" {
		if f.Location == read.Location || f.Location != nil && read.Location != nil && *f.Location == *read.Location {
			return false, nil, nil
		}
		if f.Location == nil {
			return true, nil, nil
		}
		value, err = marshal(f.Location)
		return true, value, err
	}
	now, before := f.text(name), read.text(name)
	if now == before {
		return false, nil, nil
	}
	if now == "" {
		return true, nil, nil
	}
	return true, quote(now), nil
}

func (f restaurantFields) text(name string) string {
	switch name {
	case "placeId":
		return f.PlaceID
	case "name":
		return f.Name
	case "address":
		return f.Address
	case "cityText":
		return f.CityText
	default:
		return f.Phone
	}
}

// rules are those of types that need more than their fields. Lists of structs are bounded before they are read: a small message must not
// become a large value.
var rules = strictjson.NewRules(func(r *strictjson.Report) *jsonv2.Unmarshalers {
	restaurant := func(dec *jsontext.Decoder, dst *Restaurant) error {
		if r.EndsAtFirst() {
			return dst.quick(dec, r)
		}
		return dst.report(dec, r)
	}
	return jsonv2.JoinUnmarshalers(strictjson.AtMost(r, maxResults, restaurant), jsonv2.UnmarshalFromFunc(restaurant),
		strictjson.AtMost(r, maxRecipients, func(dec *jsontext.Decoder, dst *Recipient) error { return jsonv2.UnmarshalDecode(dec, dst) }))
})

// lax takes an escape of half a character as encoding/json does.
var lax = jsontext.AllowInvalidUTF8(true)

// report reads the known fields, with the problems of all.
func (r *Restaurant) report(dec *jsontext.Decoder, problems *strictjson.Report) error {
	if kind := dec.PeekKind(); kind != '{' {
		problems.Add(dec, "must be an object, got "+strictjson.Kind([]byte{byte(kind)}))
		return dec.SkipValue()
	}
	var fields struct {
		restaurantFields

		// The bytes of states of another type would be lost when one is written.
		Providers map[string]struct{} `json:"providers"`
		Wolt      struct{}            `json:"wolt"`
	}
	if err := jsonv2.UnmarshalDecode(dec, &fields); err != nil {
		return err
	}
	r.read = fields.restaurantFields
	r.set()
	return nil
}

// set sets the fields to what was read.
func (r *Restaurant) set() {
	f := &r.read
	r.Address, r.CityText, r.Location, r.Name, r.Phone, r.PlaceID = f.Address, f.CityText, f.Location, f.Name, f.Phone, f.PlaceID
	if f.Location != nil {
		r.readAt = *f.Location
	}
}

var errRestaurant = errors.New("contracts: a field of a restaurant has the wrong type")

// quick reads one restaurant, and returns an error if there is any problem.
func (r *Restaurant) quick(dec *jsontext.Decoder, report *strictjson.Report) error {
	raw, err := report.Keep(dec)
	if err != nil {
		return err
	}
	var known [len(knownFields)][]byte
	good, bare, size := true, true, 1 // without white space between members
	ok := strictjson.Walk(raw, func(m strictjson.Member) bool {
		size += len(m.RawName) + len(m.Value) + 2
		switch name := m.Name(); string(name) {
		case "providers":
			bare = false
			if good = isObject(m.Value); m.Value[0] == '{' {
				good = strictjson.Walk(m.Value, func(m strictjson.Member) bool { return isObject(m.Value) })
			}
		case ProviderWolt:
			bare, good = false, isObject(m.Value)
		case "placeId", "name", "address", "cityText", "location", "phone":
			known[slices.Index(knownFields[:], string(name))] = m.Value
		}
		return good
	})
	if !ok {
		return errRestaurant
	}
	r.fields = object{raw: raw, bare: bare}
	if size != len(raw) {
		r.fields.split()
	}
	err = r.read.decode(known)
	r.set()
	return err
}

// readLocation is Location.UnmarshalJSONFrom for JSON that was checked, in a third of its time. It returns nil for JSON of another type.
func readLocation(object []byte) *Location {
	var read [2][]byte
	at := [2]float64{math.NaN(), math.NaN()}
	if strictjson.Pick(read[:], object, "lat", "lng") != nil {
		return nil
	}
	for i, number := range read {
		if number != nil && string(number) != "null" {
			var err error
			if at[i], err = strconv.ParseFloat(string(number), 64); err != nil {
				return nil
			}
		}
	}
	return &Location{Lat: at[0], Lng: at[1]}
}

func isObject(value []byte) bool { return value[0] == '{' || string(value) == "null" }

// decode reads the known fields. The texts of a restaurant share one allocation, since a request has up to a hundred restaurants.
func (f *restaurantFields) decode(values [len(knownFields)][]byte) error {
	var room [512]byte
	texts, ends := room[:0], [len(knownFields)]int{}
	for i, name := range knownFields {
		value := values[i]
		switch {
		case len(value) == 0 || string(value) == "null":
		case name == "location":
			if f.Location = readLocation(value); f.Location == nil {
				return errRestaurant
			}
		case strictjson.IsPlain(value):
			texts = append(texts, value[1:len(value)-1]...)
		default:
			text, ok := strictjson.Text(value)
			if !ok {
				return errRestaurant
			}
			texts = append(texts, text...)
		}
		ends[i] = len(texts)
	}
	all, begin := string(texts), 0
	for i, text := range []*string{&f.PlaceID, &f.Name, &f.Address, &f.CityText, nil, &f.Phone} {
		if text != nil {
			*text = all[begin:ends[i]]
		}
		begin = ends[i]
	}
	return nil
}

func readState(raw []byte) (ProviderState, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return ProviderState{}, false
	}
	var state ProviderState
	err := jsonv2.Unmarshal(raw, &state, lax)
	return state, err == nil && state.Status != ""
}

// appendWithResults writes a struct whose member "results", null in the envelope, must not go through encoding/json,
// which would compact and escape the unknown members of restaurants.
func appendWithResults(dst []byte, envelope any, results []Restaurant) ([]byte, error) {
	raw, err := marshal(envelope)
	if err != nil {
		return dst, err
	}
	const null = `"results":null` // never within a text, where quotation marks have a backslash
	before, after, _ := bytes.Cut(raw, []byte(null))
	list := append(slices.Grow(dst, len(raw)+512*len(results)), before...) // a restaurant has some 500 bytes
	list = append(list, `"results":[`...)
	for i, restaurant := range results {
		if i > 0 {
			list = append(list, ',')
		}
		if list, err = restaurant.AppendJSON(list); err != nil {
			return dst, fmt.Errorf("results/%d: %w", i, err)
		}
	}
	return append(append(list, ']'), after...), nil
}
