package export

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// draft is the text of a step in which parts are to be marked up.
type draft struct {
	text, folded string
	marks        []mark
}

// mark says what takes the place of a part of the text.
type mark struct {
	from, to int
	markup   string
}

func newDraft(text string) *draft {
	text = line(text)
	return &draft{text: text, folded: fold(text)}
}

// fold returns a text in lower case in which every character is where it was.
func fold(text string) string {
	return strings.Map(func(r rune) rune {
		if lower := unicode.ToLower(r); utf8.RuneLen(lower) == utf8.RuneLen(r) {
			return lower
		}
		return r
	}, text)
}

// mention returns where whole words first stand in the text, unmarked as yet; -1 when they do not.
func (d *draft) mention(folded string) (from int) {
	for at := 0; folded != ""; at++ {
		next := strings.Index(d.folded[at:], folded)
		if next < 0 {
			return -1
		}
		at += next
		if d.free(at, at+len(folded)) {
			return at
		}
	}
	return -1
}

// free reports whether a part of the text is not within words and not marked.
func (d *draft) free(from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(d.text[:from])
	after, _ := utf8.DecodeRuneInString(d.text[to:])
	first, _ := utf8.DecodeRuneInString(d.text[from:])
	last, _ := utf8.DecodeLastRuneInString(d.text[:to])
	if inWord(before) && inWord(first) || inWord(after) && inWord(last) {
		return false
	}
	return !slices.ContainsFunc(d.marks, func(m mark) bool { return from < m.to && m.from < to })
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// replace marks a part of the text.
func (d *draft) replace(from, to int, markup string) {
	d.marks = append(d.marks, mark{from: from, to: to, markup: markup})
}

// String returns the text with its marks, the rest escaped.
func (d *draft) String() string {
	slices.SortFunc(d.marks, func(a, b mark) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, m := range d.marks {
		b.WriteString(between(d.text[at:m.from], at) + m.markup)
		at = m.to
	}
	b.WriteString(between(d.text[at:], at))
	return b.String()
}

// between escapes a part of a step that begins at a place of it: at the beginning of the line some characters mean something
// else, and right after a mark others.
func between(text string, at int) string {
	first := "({"
	if at == 0 {
		first = ">="
	}
	return escapeFirst(escape(text, inText), first)
}
