package input

import (
	"encoding/json"
	"strconv"
)

// Place is one place to look up, as a file gave it.
type Place struct {
	// Address is the street address as written; empty when unknown.
	Address string

	// Body is the place as a JSON object under the names of the wire format (placeId, name, address, cityText, phone,
	// location). Fields that this package does not know are kept: from JSON byte for byte and in their order, from CSV
	// as strings under the column's name.
	Body json.RawMessage

	// City is the city as written, or the default that was given for the file; empty when unknown.
	City string

	// ID identifies the place. Never empty.
	ID string

	// Location is nil when the coordinates are unknown.
	Location *Point

	// Name is never empty.
	Name string

	// Offset is how many bytes of the whole input had been consumed when this place had been read, over all files. It
	// tells a progress bar how far the work is when this place is done.
	Offset int64

	// Phone is the phone number as written; empty when unknown.
	Phone string

	// Position is where the place starts in its file.
	Position Position
}

// Point is a position on the earth in degrees (WGS 84).
type Point struct {
	// Lat is the latitude, -90 to 90.
	Lat float64 `json:"lat"`

	// Lng is the longitude, -180 to 180.
	Lng float64 `json:"lng"`
}

// Position is a line of a file.
type Position struct {
	// File is the path as it was given, or "stdin".
	File string

	// Line counts from 1.
	Line int
}

// String returns file:line.
func (p Position) String() string {
	return p.File + ":" + strconv.Itoa(p.Line)
}
