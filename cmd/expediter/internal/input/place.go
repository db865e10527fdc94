package input

import (
	"encoding/json"
	"strconv"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Place is one place to look up, as a file gave it.
type Place struct {
	// Body is the place as a JSON object under the names of the wire format (placeId, name, address, cityText, phone,
	// location). Fields that this package does not know are kept: from JSON byte for byte and in their order, from CSV
	// as strings under the column's name.
	Body json.RawMessage

	// Offset is how many bytes of the whole input had been consumed when this place had been read, over all files. A
	// progress bar uses it as the progress when this place is done.
	Offset int64

	// Position is where the place starts in its file.
	Position Position

	// Restaurant is Body decoded and validated; its PlaceID and Name are never empty.
	Restaurant contracts.Restaurant
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
