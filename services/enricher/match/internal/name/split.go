package name

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// part is a piece of a name; a qualifier stands in parentheses, after a dash or after "at".
type part struct {
	text      string
	qualifier bool
}

// aka are words that introduce another name of the same venue.
var aka = []string{
	"aka ", "a.k.a. ", "a/k/a ", "dba ", "d/b/a ", "formerly ", "fka ", "f/k/a ", "ex ", "ex-", "also known as ",
	"vormals ", "anciennement ", "לשעבר ", "бывш. ", "πρωην ",
}

// split returns the names in a folded text, each in parts: first the whole text, then each alternative name in it.
func split(folded string) [][]part {
	base, asides := parentheses(folded)
	for _, a := range aka {
		if main, other, ok := strings.Cut(base, " "+a); ok && len(a) > 3 {
			base, asides = main, append(asides, a+other)
		}
	}
	parts := dashes(base)
	if len(parts) == 0 {
		parts = dashes(strings.Join(asides, " "))
		asides = nil
	}
	var others [][]part
	for _, a := range asides {
		if other, ok := alternative(a); ok {
			others = append(others, dashes(other))
			continue
		}
		parts = append(parts, part{text: a, qualifier: true})
	}
	kept := parts[:0]
	for i, p := range parts {
		if other, ok := alternative(p.text); ok && i > 0 {
			others = append(others, []part{{text: other}})
			continue
		}
		kept = append(kept, p)
	}
	return append([][]part{kept}, others...)
}

func alternative(s string) (string, bool) {
	s = strings.TrimSpace(s)
	for _, a := range aka {
		if rest, ok := strings.CutPrefix(s, a); ok {
			return rest, true
		}
	}
	return "", false
}

// parentheses separates a text from its bracketed parts. A bracket that is not closed ends with the text.
func parentheses(s string) (base string, asides []string) {
	if !strings.ContainsAny(s, "([{") {
		return s, nil
	}
	var b strings.Builder
	for s != "" {
		open := strings.IndexAny(s, "([{")
		if open < 0 {
			break
		}
		b.WriteString(s[:open])
		b.WriteByte(' ')
		s = s[open+1:]
		end := strings.IndexAny(s, ")]}")
		if end < 0 {
			end = len(s)
		}
		if aside := strings.TrimSpace(s[:end]); aside != "" {
			asides = append(asides, aside)
		}
		s = s[min(end+1, len(s)):]
	}
	b.WriteString(s)
	return strings.TrimSpace(b.String()), asides
}

// dashes splits a text at its dashes, bars, slashes, colons and commas, and at "at"; the parts behind the first qualify it.
func dashes(s string) []part {
	var parts []part
	add := func(t string) {
		if strings.IndexFunc(t, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			parts = append(parts, part{text: t, qualifier: len(parts) > 0})
		}
	}
	for {
		at, n := separator(s)
		if at < 0 {
			add(s)
			return parts
		}
		add(s[:at])
		s = s[at+n:]
	}
}

// separator finds the first separator of a name and its length. A dash needs a space beside it: "bel-air" is one name.
func separator(s string) (at, n int) {
	for i, r := range s {
		switch r {
		case '|', ';', ':', '@', '~', '>', '/':
			return i, 1
		case ',':
			if i+1 < len(s) && s[i+1] == ' ' || i+1 == len(s) {
				return i, 1
			}
		case '-':
			before, _ := utf8.DecodeLastRuneInString(s[:i])
			after, _ := utf8.DecodeRuneInString(s[i+1:])
			if before == ' ' || after == ' ' {
				return i, 1
			}
		case ' ':
			if i > 0 && strings.HasPrefix(s[i:], " at ") {
				return i, len(" at ")
			}
		}
	}
	return -1, 0
}
