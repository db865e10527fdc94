package match

// Place is what is known of a venue. Every field may be empty: what is missing counts neither for nor against a match.
// Of each text field the first 512 bytes are read.
type Place struct {
	// Address is the street address in any order, with or without postcode, city and country.
	Address string `json:"address,omitempty"`
	// Aliases are other names of the venue, in any script.
	Aliases []string `json:"aliases,omitempty"`
	// City is the name of the city in any language.
	City string `json:"city,omitempty"`
	// Location is where the venue is; nil when that is not known.
	Location *Point `json:"location,omitempty"`
	// Name is the name as the source writes it.
	Name string `json:"name"`
	// Phone is one or more telephone numbers as the source writes them.
	Phone string `json:"phone,omitempty"`
}

// Point is a place on the earth in degrees, WGS 84.
type Point struct {
	// Lat is the latitude in [-90,90].
	Lat float64 `json:"lat"`
	// Lng is the longitude in [-180,180].
	Lng float64 `json:"lng"`
}
