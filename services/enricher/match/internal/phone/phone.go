// Package phone compares telephone numbers of any country as written.
//
// Two numbers are the same when one ends in the digits of the other, without international prefixes, trunk zeros and
// extensions. A national number is the end of the international one in every numbering plan, except where the trunk
// prefix is not a zero; these plans are listed.
package phone

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

// Number is the digits of a number without prefixes.
type Number string

// Key is the end of the number: numbers that are the same have the same key.
func (n Number) Key() string {
	if len(n) < minDigits {
		return ""
	}
	return string(n[len(n)-minDigits:])
}

// Parse returns the numbers in a field, which may list several.
func Parse(field string) []Number {
	var out []Number
	for _, part := range split(text.Fold(field)) {
		if n := clean(part); n != "" && len(out) < maxNumbers {
			out = append(out, n)
		}
	}
	return out
}

// split cuts a field at words and separators between numbers, and drops extensions. A slash separates numbers only when
// there are enough digits on both sides: "310/652-4025" is one number.
func split(s string) []string {
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
		at := strings.IndexFunc(s, unicode.IsLetter)
		if at < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:at])
		end := at
		for end < len(s) {
			if i := strings.IndexFunc(s[end:], func(r rune) bool { return !unicode.IsLetter(r) && r != '.' }); i >= 0 {
				end += i
			} else {
				end = len(s)
			}
			break
		}
		word := strings.Trim(s[at:end], ".")
		s = s[end:]
		if extension(word) {
			s = strings.TrimLeft(s, " .:#0123456789")
		}
	}
	return parts
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
		if count(p) < localDigits {
			return []string{strings.ReplaceAll(s, "/", " ")}
		}
	}
	return parts
}

func count(s string) int {
	n := 0
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n
}

// clean keeps the digits of a number that identify it.
func clean(s string) Number {
	s = strings.Replace(s, "(0)", "", 1)
	d := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
	d = strings.TrimLeft(d, "0")
	if len(d) < minDigits || len(d) > maxDigits {
		return ""
	}
	return Number(d)
}

// Agreement is the result of comparing two fields of numbers.
type Agreement uint8

// The results of comparing numbers.
const (
	Unknown Agreement = iota
	Same
	Local // the same without an area code
	Differs
)

// Compare compares two fields. The result is Same when the fields have a number in common. It does not allocate.
func Compare(a, b []Number) Agreement {
	if len(a) == 0 || len(b) == 0 {
		return Unknown
	}
	best := Differs
	for _, n := range a {
		for _, m := range b {
			switch equal(n, m) {
			case Same:
				return Same
			case Local:
				best = Local
			case Unknown, Differs:
			}
		}
	}
	return best
}

// longestPrefix is the most digits that a country code and a mobile prefix add to a national number.
const longestPrefix = 5

func equal(a, b Number) Agreement {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutSuffix(string(b), string(a))
	switch {
	case ok && rest == "" && len(a) > localDigits:
		return Same
	case ok && len(a) <= localDigits:
		return Local
	case ok && len(rest) <= longestPrefix:
		return Same
	case trunk(string(a), string(b)) || trunk(string(b), string(a)):
		return Same
	}
	return Differs
}

// trunks lists the trunk prefixes other than zero, and the country codes that replace them.
var trunks = [...]struct{ trunk, country string }{
	{"8", "7"}, {"80", "375"}, {"8", "370"}, {"8", "993"}, {"6", "36"}, {"1", "52"}, {"1", ""},
}

// trunk reports whether national is international with its country code in place of a trunk prefix that is not a zero:
// 8 in Russia, Kazakhstan, Belarus and their neighbours and in Lithuania, 6 (after a zero) in Hungary, 1 in North America.
func trunk(national, international string) bool {
	for _, p := range trunks {
		n, ok := strings.CutPrefix(national, p.trunk)
		if !ok || len(n) <= localDigits {
			continue
		}
		if i, ok := strings.CutPrefix(international, p.country); ok && i == n {
			return true
		}
	}
	return false
}
