package lexicon

import (
	_ "embed" // the tables
	"strings"
)

// Part is the role of a word of an address.
type Part uint8

// The parts of an address that are not the name of a street.
const (
	// Plain is any other word.
	Plain Part = iota
	// Type is a word for street, road, square.
	Type
	// Direction is a quarter of the compass.
	Direction
	// Unit starts a suite, floor or flat, whose number is not the house's.
	Unit
	// Cross starts a crossing street or a neighbour: the words after it do not name the street itself.
	Cross
	// NumberMark means that the next word is the house number.
	NumberMark
	// Building is a word for a mall, tower or hotel around the venue.
	Building
	// Filler means nothing.
	Filler
)

// AddressWord is the entry of a word of an address in the tables.
type AddressWord struct {
	// Canonical is the same for all spellings of the word.
	Canonical string
	Part      Part
}

// Address looks up a folded word of an address.
func Address(word string) (AddressWord, bool) {
	w, ok := addresses[word]
	return w, ok
}

//go:embed addresses.txt
var addressesText string

var addresses = func() map[string]AddressWord {
	parts := map[string]Part{
		"building": Building, "cross": Cross, "direction": Direction, "filler": Filler, "mark": NumberMark, "type": Type, "unit": Unit,
	}
	out := make(map[string]AddressWord, 512)
	for part, words := range lines(addressesText) {
		for _, w := range words {
			out[key(w)] = AddressWord{Canonical: words[0], Part: parts[part]}
		}
	}
	return out
}()

// NumberedRoad reports whether the number after a word names the road: "highway 101".
func NumberedRoad(word string) bool {
	switch word {
	case "highway", "hwy", "hiway", "route", "rte", "interstate", "us", "sr", "km", "ca":
		return true
	}
	return false
}

// StreetStem returns the stem of a compound such as "hauptstrasse", "kerkstraat" or "drottninggatan". It has at least three letters.
func StreetStem(word string) (stem string, ok bool) {
	for _, s := range suffixes {
		if stem, found := strings.CutSuffix(word, s); found && len(stem) >= 3 {
			return stem, true
		}
	}
	return word, false
}

var suffixes = []string{
	"strasse", "straat", "str", "gasse", "gatan", "gata", "gaten", "gade", "vagen", "veien", "vej", "allee", "laan",
	"plein", "platz", "gracht", "katu", "kade", "weg",
}

// StreetName returns the meaning of a word of a street's name, the same in every language, and "" for a word that
// streets do not translate, as most are. Translations of a street's name agree in these words only: "King George",
// "Independence Road", "Red Square".
func StreetName(word string) string {
	if c, ok := streetNames[word]; ok {
		return c
	}
	if rest, ok := strings.CutPrefix(word, "ה"); ok { // the Hebrew article
		if c, ok := streetNames[rest]; ok {
			return c
		}
	}
	if e, ok := Name(word); ok && e.Kind == Food { // adjectives, "new", "red"
		return e.Concept
	}
	return ""
}

//go:embed streets.txt
var streetsText string

var streetNames = concepts(streetsText)
