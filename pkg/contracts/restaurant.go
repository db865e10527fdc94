package contracts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts/internal/strictjson"
)

// Location is a point on the WGS 84 ellipsoid in decimal degrees.
type Location struct {
	// Lat is the latitude, -90 to 90.
	Lat float64 `json:"lat" jsonschema:"minimum=-90,maximum=90" wire:"present"`
	// Lng is the longitude, -180 to 180.
	Lng float64 `json:"lng" jsonschema:"minimum=-180,maximum=180" wire:"present"`
}

// Validate checks the ranges.
func (l Location) Validate() error {
	var c checks
	c.refuse(!(l.Lat >= -90 && l.Lat <= 90), "/lat", "must be between -90 and 90")
	c.refuse(!(l.Lng >= -180 && l.Lng <= 180), "/lng", "must be between -180 and 180")
	return c.err("Location")
}

// Restaurant is one search result on its way through the enricher.
//
// The exported fields are those that matching needs. All other members of the sender's object are kept: names, order and values stay byte
// for byte as they came. So do numbers, known fields that did not change, and the states of other providers in "providers". Only white
// space between members is lost. Use Encode, or AppendJSON, to write one: encoding/json compacts and escapes the result of MarshalJSON.
//
// A Restaurant may be copied; a copy is independent.
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
	return c.err("Restaurant")
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
	fields := decodeInto(data, r)
	if len(fields.list) > 0 {
		return &ValidationError{Type: "Restaurant", Fields: fields.list, cause: fields.sentinel}
	}
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

// hooks are the types that the strict decoder leaves to this package.
var hooks map[reflect.Type]strictjson.Hook

func init() { //nolint:gochecknoinits // A variable with a value would refer to itself through decodeInto.
	hooks = map[reflect.Type]strictjson.Hook{reflect.TypeFor[Restaurant](): decodeRestaurant}
}

func decodeRestaurant(d *strictjson.Decoder, dst reflect.Value) {
	var known [len(knownFields)][]byte
	var providers, wolt []byte
	size := 1 // without white space between members
	raw, ok := d.Object(func(m strictjson.Member) {
		size += len(m.RawName) + len(m.Value) + 2
		switch name := string(m.Name()); name {
		case "providers":
			providers = m.Value
		case ProviderWolt:
			wolt = m.Value
		default:
			if i := slices.Index(knownFields[:], name); i >= 0 {
				known[i] = m.Value
			}
		}
	})
	if !ok {
		return
	}
	r := dst.Addr().Interface().(*Restaurant) //nolint:forcetypeassert // the hook is for this type
	*r = Restaurant{fields: object{raw: raw, bare: providers == nil && wolt == nil}}
	if size != len(raw) {
		r.fields.split()
	}
	r.read.decode(d, known)
	r.Address, r.CityText, r.Name, r.Phone, r.PlaceID = r.read.Address, r.read.CityText, r.read.Name, r.read.Phone, r.read.PlaceID
	if r.read.Location != nil {
		r.Location, r.readAt = r.read.Location, *r.read.Location
	}
	checkStates(d, providers, wolt)
}

// decode reads the known fields. The texts of a restaurant share one allocation, since a request has up to a hundred restaurants.
func (f *restaurantFields) decode(d *strictjson.Decoder, values [len(knownFields)][]byte) {
	var room [512]byte
	texts, ends := room[:0], [len(knownFields)]int{}
	for i, name := range knownFields {
		value := values[i]
		switch {
		case value == nil:
		case name == "location":
			d.Member(name, value, reflect.ValueOf(&f.Location).Elem())
		case strictjson.IsPlain(value):
			texts = append(texts, value[1:len(value)-1]...)
		default:
			var text string
			d.Member(name, value, reflect.ValueOf(&text).Elem())
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
}

// checkStates refuses states of the wrong type, whose bytes would otherwise be lost when one is written.
func checkStates(d *strictjson.Decoder, providers, wolt []byte) {
	checkState(d, "/"+ProviderWolt, wolt)
	if providers == nil || string(providers) == "null" {
		return
	}
	if providers[0] != '{' {
		d.Report("/providers", "must be an object, got "+strictjson.Kind(providers))
		return
	}
	for _, member := range strictjson.Members(providers) {
		checkState(d, strictjson.Pointer("/providers", string(member.Name())), member.Value)
	}
}

func checkState(d *strictjson.Decoder, path string, raw []byte) {
	if len(raw) > 0 && raw[0] != '{' && string(raw) != "null" {
		d.Report(path, "must be an object, got "+strictjson.Kind(raw))
	}
}

func readState(raw []byte) (ProviderState, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return ProviderState{}, false
	}
	var state ProviderState
	var d strictjson.Decoder
	problem := d.Decode(raw, reflect.ValueOf(&state).Elem())
	return state, problem == nil && len(d.Problems) == 0 && state.Status != ""
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
