// Package lexicon holds the fixed word tables of the matcher: words that say little about which venue is meant, words for
// the same thing in several languages, parts of addresses, numbers, and names of cities. The tables are written by hand
// from general knowledge of the languages. None is fitted to data.
package lexicon

import (
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// Kind is how much a word of a name distinguishes.
type Kind uint8

// The kinds of words, from the most telling to the least.
const (
	// Distinctive is any word that is in no table.
	Distinctive Kind = iota
	// Food is a dish, a cuisine or a common adjective: many venues of a city share it.
	Food
	// Venue is a word for the kind of place, which sources add and drop.
	Venue
	// Stop is an article, a preposition, a conjunction or a legal form.
	Stop
)

// weights is what a word of each kind counts for beside a distinctive one.
var weights = [...]float64{Distinctive: 1, Food: 0.45, Venue: 0.25, Stop: 0.06}

// Weight returns what a word of the kind counts for, in (0,1].
func (k Kind) Weight() float64 { return weights[k] }

// Entry is what the tables know of a word.
type Entry struct {
	// Concept is the same for words that mean the same, in any language.
	Concept string
	Kind    Kind
}

// Name looks up a folded word of a name, with or without the Hebrew words for "the" and "and", which are written on to it.
func Name(word string) (Entry, bool) {
	if e, ok := names[word]; ok {
		return e, ok
	}
	rest, and := strings.CutPrefix(word, "ו")
	rest, the := strings.CutPrefix(rest, "ה")
	if !and && !the {
		return Entry{}, false
	}
	e, ok := names[rest]
	if !ok && and && the { // a word that starts with the letter of the article
		e, ok = names["ה"+rest]
	}
	return e, ok && len(rest) > 2
}

var names = build(map[Kind]string{Stop: stopWords, Venue: venueWords, Food: foodWords})

// build reads tables of lines: each line is a concept, its first word names it.
func build(tables map[Kind]string) map[string]Entry {
	out := make(map[string]Entry, 1024)
	for _, kind := range []Kind{Food, Venue, Stop} { // a word in two tables tells the less
		for line := range strings.SplitSeq(tables[kind], "\n") {
			words := strings.Fields(line)
			for _, w := range words {
				out[key(w)] = Entry{Concept: words[0], Kind: kind}
			}
		}
	}
	return out
}

// key returns a word of a table in the form in which texts are looked up.
func key(word string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '&' || r == '@' {
			return r
		}
		return -1
	}, text.Fold(word))
}
