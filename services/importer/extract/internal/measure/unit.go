package measure

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

//go:embed units.txt
var unitsText string

// Class is the quantity that a unit measures.
type Class uint8

// The classes.
const (
	// Counted is a unit for counting pieces, or an amount such as a pinch.
	Counted Class = iota
	// Measured is weight or volume.
	Measured
	// Vessel is a container in which food is sold or served.
	Vessel
)

// Unit is a unit of the kitchen.
type Unit struct {
	// Name is in English and in the singular.
	Name  string
	Class Class
}

// unitEntry is one way to write a unit.
type unitEntry struct {
	words []string
	unit  Unit
}

// units has the ways to write units by their first words, longest first.
var units = parseUnits(unitsText)

func parseUnits(text string) map[string][]unitEntry {
	out := map[string][]unitEntry{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, forms, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "//") {
			continue
		}
		u := Unit{}
		switch {
		case strings.HasPrefix(name, "= "):
			u.Class, name = Measured, name[2:]
		case strings.HasPrefix(name, "# "):
			u.Class, name = Vessel, name[2:]
		}
		u.Name = name
		for form := range strings.FieldsSeq(forms) {
			split := words.Split(words.Plain(strings.ReplaceAll(form, "~", " ")))
			ws := make([]string, len(split))
			for i, w := range split {
				ws[i] = w.Lower
			}
			out[ws[0]] = append(out[ws[0]], unitEntry{words: ws, unit: u})
		}
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b unitEntry) int { return len(b.words) - len(a.words) })
	}
	return out
}

// sizes has the words that may stand between a number and its unit.
var sizes = words.Set(`generous heaping heaped level scant good big small large healthy tiny nice rounded full whole packed medium
hefty fat thick thin little teeny`)

// ReadUnit reads a unit with the point of an abbreviation, and words of size before it.
func ReadUnit(ws []words.Word, i int) (u Unit, used int) {
	for sizes[at(ws, i+used)] && used < 2 {
		used++
	}
	u, more := unitAt(ws, i+used)
	if more == 0 {
		return Unit{}, 0
	}
	used += more
	if at(ws, i+used) == "." && len(ws[i+used-1].Text) <= 5 && ws[i+used].Start == ws[i+used-1].End && i+used+1 < len(ws) {
		used++
	}
	return u, used
}

func unitAt(ws []words.Word, i int) (Unit, int) {
	if at(ws, i) == "t" && ws[i].Text == "T" { // T is a tablespoon, t a teaspoon
		return Unit{Name: "tablespoon", Class: Measured}, 1
	}
	for _, e := range units[at(ws, i)] {
		if matches(ws, i, e.words) {
			return e.unit, len(e.words)
		}
	}
	return Unit{}, 0
}

func matches(ws []words.Word, i int, want []string) bool {
	for j, w := range want {
		if at(ws, i+j) != w {
			return false
		}
	}
	return true
}

// Amount is a number with a unit.
type Amount struct {
	Number Number
	Unit   Unit
	// Note is the size of a vessel, or a second amount: "14 ounce", "plus 1 tablespoon".
	Note string
}

// ReadAmount reads "2 cups", "a pinch of", "two 400 gram cans of", "1 (14 oz) can", "1 cup plus 2 tablespoons". The word "of"
// is part of the amount. A number without a unit is an amount as well; a lone article is not.
func ReadAmount(ws []words.Word, i int) (a Amount, used int) {
	if unitsFirst[at(ws, i)] {
		return unitFirst(ws, i)
	}
	article := isArticle(at(ws, i))
	a.Number, used = ReadNumber(ws, i)
	if used == 0 {
		return Amount{}, 0
	}
	if size, more := readSize(ws, i+used); more > 0 {
		a.Note = size
		used += more
		a.Unit, more = ReadUnit(ws, i+used)
		used += more
	} else {
		a.Unit, more = ReadUnit(ws, i+used)
		used += more
		if vessel, more := unitAt(ws, i+used); a.Unit.Class == Measured && more > 0 && vessel.Class == Vessel && at(ws, i+used) != "glass" {
			a.Note = vessel.Name
			used += more
		}
	}
	if article && a.Unit.Name == "" && a.Number == (Number{Min: 1, Max: 1}) {
		return Amount{}, 0
	}
	if more := second(ws, i+used); more > 0 && a.Unit.Name != "" {
		a.Note = strings.TrimSpace(a.Note + " " + textOf(ws[i+used:i+used+more]))
		used += more
	}
	if a.Unit.Name != "" || at(ws, i) == "half" {
		used += ofAny(ws, i+used)
	}
	return a, used
}

// unitFirst reads "大さじ2".
func unitFirst(ws []words.Word, i int) (a Amount, used int) {
	u, used := unitAt(ws, i)
	n, more := ReadNumber(ws, i+used)
	if more == 0 {
		return Amount{}, 0
	}
	used += more
	return Amount{Number: n, Unit: u}, used + ofAny(ws, i+used)
}

func ofAny(ws []words.Word, i int) int {
	switch at(ws, i) {
	case "of", "de", "di", "d'", "的", "の":
		return 1
	}
	return 0
}

// readSize reads the size of a vessel, which stands before it: "400 gram" before "cans", "(14 oz)".
func readSize(ws []words.Word, i int) (string, int) {
	open := 0
	if at(ws, i) == "(" {
		open = 1
	}
	_, n := single(ws, i+open)
	if n == 0 || isArticle(at(ws, i+open)) {
		return "", 0
	}
	dash := 0
	if at(ws, i+open+n) == "-" {
		dash = 1
	}
	u, m := ReadUnit(ws, i+open+n+dash)
	used := open + n + dash + m
	if m == 0 || u.Class != Measured && u.Name != "inch" {
		return "", 0
	}
	text := textOf(ws[i+open : i+used])
	if open == 1 {
		if at(ws, i+used) != ")" {
			return "", 0
		}
		used++
	}
	return text, used
}

// second reads "plus 2 tablespoons", "and 1 tablespoon", "/ 250 ml" and "(250 ml)" after an amount.
func second(ws []words.Word, i int) int {
	switch at(ws, i) {
	case "plus", "and", "+", "/", "(":
	default:
		return 0
	}
	const begin = 1
	_, n := single(ws, i+begin)
	if n == 0 || isArticle(at(ws, i+begin)) {
		return 0
	}
	u, m := ReadUnit(ws, i+begin+n)
	if m == 0 || u.Class != Measured {
		return 0
	}
	used := begin + n + m
	if at(ws, i) == "(" {
		if at(ws, i+used) != ")" {
			return 0
		}
		used++
	}
	return used
}

func textOf(ws []words.Word) string { return strings.Trim(words.Join(ws), "()/ ") }
