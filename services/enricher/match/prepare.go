package match

import (
	"cmp"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
	"github.com/expediter-io/expediter/services/enricher/match/internal/city"
	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/name"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phone"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
)

// Prepared is a place taken apart once, so that comparing it with many others is cheap. It is read-only and may be shared
// between goroutines.
//
// Tokens, Skeletons and PhoneKeys are for finding candidates in a large catalogue: two places that match nearly always
// share one of them.
type Prepared struct {
	// Place is the place as given.
	Place Place
	// Tokens are the folded words of the names that tell places apart, each once.
	Tokens []string
	// Skeletons are the consonant classes of the names in each plausible reading: equal or nearly so across scripts.
	Skeletons []string
	// PhoneKeys are the last digits of the telephone numbers.
	PhoneKeys []string

	address address.Address
	city    city.City
	local   []string
	name    name.Name
	phones  []phone.Number
}

// Prepare takes a place apart. It costs some tens of microseconds and allocates.
func Prepare(p Place) *Prepared {
	c := city.Parse(p.City)
	a := address.Parse(p.Address, c.Words)
	q := &Prepared{Place: p, address: a, city: c, phones: phone.Parse(p.Phone)}
	for _, words := range [][]string{c.Words, {c.Canonical}, a.Words} {
		for _, w := range words {
			if !slices.Contains(q.local, w) {
				q.local = append(q.local, w)
			}
		}
	}
	q.name = name.Parse(p.Name, p.Aliases, q.local)
	q.block()
	return q
}

// block collects what candidates are found by.
func (p *Prepared) block() {
	for i := range p.name.Variants {
		v := &p.name.Variants[i]
		for j, t := range v.Tokens {
			if v.Words[j].Kind <= lexicon.Food || len(v.Tokens) == 1 {
				p.Tokens = appendNew(p.Tokens, t.Text)
			}
		}
		for _, s := range phonetic.Skeletons(v.Row.Sounds) {
			p.Skeletons = appendNew(p.Skeletons, s)
		}
	}
	if len(p.Tokens) == 0 && len(p.name.Variants) > 0 {
		for _, t := range p.name.Variants[0].Tokens {
			p.Tokens = appendNew(p.Tokens, t.Text)
		}
	}
	for _, n := range p.phones {
		p.PhoneKeys = appendNew(p.PhoneKeys, n.Key())
	}
}

// after reports whether p comes after q in a fixed order, in which pairs are compared so that the comparison is symmetric.
func (p *Prepared) after(q *Prepared) bool {
	a, b := &p.Place, &q.Place
	return cmp.Or(
		strings.Compare(a.Name, b.Name), strings.Compare(a.Address, b.Address), strings.Compare(a.City, b.City),
		strings.Compare(a.Phone, b.Phone), slices.Compare(a.Aliases, b.Aliases)) > 0
}

func appendNew(to []string, s string) []string {
	if s == "" || slices.Contains(to, s) {
		return to
	}
	return append(to, s)
}

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
