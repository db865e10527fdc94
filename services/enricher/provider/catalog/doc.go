// Package catalog finds delivery links in a local file of venues.
//
// # Files
//
// [Open] takes a JSON array of objects, JSON Lines, or CSV with a header, in UTF-8
// with or without a byte order mark. Upper case, spaces and punctuation in the names
// of fields do not matter, and unknown fields are ignored:
//
//	id       id, venue_id, place_id                     wanted, unique
//	name     name, title, venue, venue_name             wanted
//	address  address, addr, street, street_address, formatted_address
//	aliases  aliases, alias, other_names, alternate_names: a list, or a text parted by | or ;
//	city     city, town, locality, city_text
//	kind     kind, product_line
//	lat      lat, latitude                              with lng, or neither
//	lng      lng, lon, long, longitude
//	phone    phone, tel, telephone, phone_number
//	url      url, link                                  http or https
//
// In JSON, latitude and longitude may also stand in an object "location". A file with
// rows that cannot be used is refused, and the [LoadError] names every such row with
// its line.
//
// # Search
//
// The file is loaded once, into an index in memory: words of the names, parts of their
// consonants (which are alike across scripts and misspellings), telephone numbers,
// house numbers with their streets, and squares of the map of about 500 m. A search
// weighs what a place shares with each venue by how rare that is, and returns the best
// 50. On 100,000 venues that takes one to four milliseconds, on one core. Building the
// index costs some 40 µs for each venue.
//
// The candidates are ordered to be complete, not to be right: which of them is the
// place, the matcher decides.
package catalog
