package match

import (
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// maxNumbers bounds the numbers read from one field.
const maxNumbers = 4

// The lengths of numbers: shorter ones are short codes, longer ones not numbers at all.
const (
	minDigits   = 6
	maxDigits   = 15
	localDigits = 7 // fewer than a national number has in most countries
)

// phoneNumber is the digits of a telephone number without prefixes. Two numbers are the same when one ends in the digits of the other,
// without international prefixes, trunk zeros and extensions. A national number is the end of the international one in every numbering
// plan, except where the trunk prefix is not a zero; these plans are listed in trunks.
type phoneNumber string

// Key is the end of the number, which has at least minDigits: numbers that are the same have the same key.
func (n phoneNumber) Key() string {
	return string(n[len(n)-minDigits:])
}

// parsePhones returns the numbers in a field, which may list several.
func parsePhones(field string) []phoneNumber {
	var out []phoneNumber
	for _, part := range splitPhones(text.Fold(field)) {
		if n := cleanPhone(part); n != "" && len(out) < maxNumbers {
			out = append(out, n)
		}
	}
	return out
}

// splitPhones cuts a field at words and separators between numbers, and drops extensions. A slash separates numbers only when
// there are enough digits on both sides: "310/652-4025" is one number.
func splitPhones(s string) []string {
	var parts []string
	for _, p := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == '|' || r == '&' }) {
		for _, q := range byWords(p) {
			parts = append(parts, bySlash(q)...)
		}
	}
	return parts
}

// byWords cuts at letters; an extension, behind "ext", "x" and the like, is not a number.
func byWords(s string) []string {
	var parts []string
	for s != "" {
		number, rest := splitAt(s, unicode.IsLetter)
		word, after := splitAt(rest, func(r rune) bool { return !unicode.IsLetter(r) && r != '.' })
		if extension(strings.Trim(word, ".")) {
			after = strings.TrimLeft(after, " .:#0123456789")
		}
		parts, s = append(parts, number), after
	}
	return parts
}

// splitAt splits a text before the first rune for which at is true.
func splitAt(s string, at func(rune) bool) (head, rest string) {
	if i := strings.IndexFunc(s, at); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func extension(word string) bool {
	switch word {
	case "x", "ext", "extn", "extension", "poste", "durchwahl", "app", "int", "interno", "שלוחה", "доб", "εσωτ":
		return true
	}
	return false
}

func bySlash(s string) []string {
	parts := strings.Split(s, "/")
	for _, p := range parts {
		if len(digits(p)) < localDigits {
			return []string{strings.ReplaceAll(s, "/", " ")}
		}
	}
	return parts
}

// digits returns the digits of a text.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// cleanPhone keeps the digits of a number that identify it.
func cleanPhone(s string) phoneNumber {
	d := strings.TrimLeft(digits(strings.Replace(s, "(0)", "", 1)), "0")
	if len(d) < minDigits || len(d) > maxDigits {
		return ""
	}
	return phoneNumber(d)
}

// comparePhones compares two fields: phoneSame when they have a number in common, else phoneLocal when they have one without its area
// code, else phoneDiffers, and noFeature when a field has no number. It does not allocate.
func comparePhones(a, b []phoneNumber) feature {
	if len(a) == 0 || len(b) == 0 {
		return noFeature
	}
	best := phoneDiffers
	for _, n := range a {
		for _, m := range b {
			best = min(best, equalPhones(n, m)) // in the order of the features
		}
	}
	return best
}

// longestPrefix is the most digits that a country code and a mobile prefix add to a national number.
const longestPrefix = 5

func equalPhones(a, b phoneNumber) feature {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutSuffix(string(b), string(a))
	switch {
	case ok && rest == "" && len(a) > localDigits:
		return phoneSame
	case ok && len(a) <= localDigits:
		return phoneLocal
	case ok && len(rest) <= longestPrefix:
		return phoneSame
	case trunkPrefix(string(a), string(b)) || trunkPrefix(string(b), string(a)):
		return phoneSame
	}
	return phoneDiffers
}

// trunks lists the trunk prefixes other than zero, and the country codes that replace them.
var trunks = [...]struct{ prefix, country string }{
	{"8", "7"}, {"80", "375"}, {"8", "370"}, {"8", "993"}, {"6", "36"}, {"1", "52"}, {"1", ""},
}

// trunkPrefix reports whether national is international with its country code in place of a trunk prefix that is not a zero:
// 8 in Russia, Kazakhstan, Belarus and their neighbours and in Lithuania, 6 (after a zero) in Hungary, 1 in North America.
func trunkPrefix(national, international string) bool {
	for _, p := range trunks {
		n, ok := strings.CutPrefix(national, p.prefix)
		if !ok || len(n) <= localDigits {
			continue
		}
		if i, ok := strings.CutPrefix(international, p.country); ok && i == n {
			return true
		}
	}
	return false
}
