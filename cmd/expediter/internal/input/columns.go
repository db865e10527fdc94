package input

import (
	"encoding/json"
	"strings"
)

// The wire names of the fields that this package knows.
const (
	fieldID       = "placeId"
	fieldName     = "name"
	fieldAddress  = "address"
	fieldCity     = "cityText"
	fieldPhone    = "phone"
	fieldLocation = "location"
	fieldLat      = "location.lat"
	fieldLng      = "location.lng"
)

// aliases maps a folded name to its field. When several columns of a record mean the same field, the one that comes
// first in preference wins and the others are passed through untouched.
var aliases = map[string]struct {
	field      string
	preference int
}{
	"placeid":   {fieldID, 0},
	"id":        {fieldID, 1},
	"name":      {fieldName, 0},
	"address":   {fieldAddress, 0},
	"addr":      {fieldAddress, 1},
	"citytext":  {fieldCity, 0},
	"city":      {fieldCity, 1},
	"phone":     {fieldPhone, 0},
	"location":  {fieldLocation, 0},
	"lat":       {fieldLat, 0},
	"latitude":  {fieldLat, 1},
	"lng":       {fieldLng, 0},
	"lon":       {fieldLng, 1},
	"longitude": {fieldLng, 2},
}

// fold makes "Place ID", "place_id" and "placeId" the same name.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ', '_', '-', '\u00a0', '\u200e', '\u200f', '\ufeff':
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// field is one name and value of a record.
type field struct {
	name  string
	value json.RawMessage
}

// columns finds the known fields among names: the result maps a wire name to its index.
func columns(names func(int) string, count int) map[string]int {
	found := make(map[string]int, len(aliases))
	preference := make(map[string]int, len(aliases))
	for i := range count {
		alias, known := aliases[fold(names(i))]
		if !known {
			continue
		}
		if _, taken := found[alias.field]; taken && preference[alias.field] <= alias.preference {
			continue
		}
		found[alias.field], preference[alias.field] = i, alias.preference
	}
	return found
}
