package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// column is a field of a venue, whatever a file calls it.
type column string

const (
	colAddress column = "address"
	colAliases column = "aliases"
	colCity    column = "city"
	colID      column = "id"
	colKind    column = "kind"
	colLat     column = "lat"
	colLng     column = "lng"
	colName    column = "name"
	colPhone   column = "phone"
	colURL     column = "url"
)

// columnNames are the names under which a field is accepted: lower case, letters
// and digits only.
var columnNames = map[string]column{
	"addr": colAddress, "address": colAddress, "formattedaddress": colAddress, "street": colAddress, "streetaddress": colAddress,
	"alias": colAliases, "aliases": colAliases, "alternatenames": colAliases, "othernames": colAliases,
	"city": colCity, "citytext": colCity, "locality": colCity, "town": colCity,
	"id": colID, "placeid": colID, "venueid": colID,
	"kind": colKind, "productline": colKind,
	"lat": colLat, "latitude": colLat,
	"lng": colLng, "lon": colLng, "long": colLng, "longitude": colLng,
	"name": colName, "title": colName, "venue": colName, "venuename": colName,
	"phone": colPhone, "phonenumber": colPhone, "tel": colPhone, "telephone": colPhone,
	"link": colURL, "url": colURL,
}

// columnOf finds the field that a header or key names, or "" for one that is not read.
func columnOf(name string) column {
	return columnNames[strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)]
}

// header maps the columns of a CSV file. It wants an id and a name, and no field twice.
func header(names []string) ([]column, error) {
	columns := make([]column, len(names))

	for i, name := range names {
		columns[i] = columnOf(name)
		if columns[i] == "" {
			continue
		}

		if first := slices.Index(columns[:i], columns[i]); first >= 0 {
			return nil, fmt.Errorf("%w: the columns %q and %q both are the %s", ErrFormat, names[first], name, columns[i])
		}
	}

	for _, needed := range []column{colID, colName} {
		if !slices.Contains(columns, needed) {
			return nil, fmt.Errorf("%w: no column is the %s; the first line has %q", ErrFormat, needed, names)
		}
	}
	return columns, nil
}
