package caption

import (
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// holdTime is the longest duration of a cue that only repeats the line before. In practice it is 10 ms.
	holdTime = 100 * time.Millisecond
	// maxWindow is the largest number of lines that are compared. Captions that scroll show two to four.
	maxWindow = 16
	// seamTime is the longest pause between two cues of which the second continues the first.
	seamTime = 500 * time.Millisecond
)

// row is a line of a cue.
type row struct {
	stamped bool // words of the line have times, so it is not a repetition
	text    string
}

// view is a cue as it is seen on the screen.
type view struct {
	end, start time.Duration
	lead       bool // the first line is blank: no line is repeated
	rows       []row
}

// look fills v with the lines of a cue that are not blank.
func (v *view) look(c Cue) {
	v.start, v.end, v.lead, v.rows = c.Start, c.End, false, v.rows[:0]
	var b strings.Builder
	stamped, first := false, true
	flush := func() {
		if text := squeeze(b.String()); text != "" {
			v.rows = append(v.rows, row{stamped: stamped, text: text})
		} else if first {
			v.lead = true
		}
		b.Reset()
		stamped, first = false, false
	}
	write := func(text string) {
		for {
			line, rest, more := strings.Cut(text, "\n")
			b.WriteString(line)
			if !more {
				return
			}
			flush()
			text = rest
		}
	}
	if c.Format == FormatWebVTT {
		for said, tag := range pieces(c.Text) {
			write(said)
			stamped = stamped || vttTag.MatchString(tag) // the time from which the text after it is spoken
		}
	} else {
		write(unescape(untagged(c.Text)))
	}
	flush()
}

// carried returns the number of lines at the start of v that repeat the end of the cue before: the largest number of
// leading lines that equal as many last lines of before. After a pause a cue has to add a line. A cue that only repeats
// lines was then spoken again.
func (v *view) carried(before *view) int {
	if v.lead || v.start < before.start {
		return 0
	}
	most := min(len(v.rows), len(before.rows), maxWindow)
	if !v.follows(before) {
		most = min(most, len(v.rows)-1)
	}
	for k := most; k > 0; k-- {
		if v.repeats(before.rows[len(before.rows)-k:]) {
			return k
		}
	}
	return 0
}

// follows reports whether there is no pause between the cues.
func (v *view) follows(before *view) bool { return v.start <= before.end+seamTime }

// repeats reports whether v begins with the rows, none of which has times of its own there.
func (v *view) repeats(rows []row) bool {
	for i, r := range rows {
		if v.rows[i].stamped || v.rows[i].text != r.text {
			return false
		}
	}
	return true
}

// scrolls reports whether cues scroll. Of the cues that follow another without a pause, at least half then repeat its
// end, and either add a line or are shown for a moment only. In other tracks a repeated line is spoken twice.
func scrolls(cues []Cue) bool {
	var before, current view
	follow, carry := 0, 0
	for _, c := range cues {
		current.look(c)
		if len(current.rows) == 0 {
			continue
		}
		if len(before.rows) > 0 && current.follows(&before) {
			follow++
			k := current.carried(&before)
			if k > 0 && (k < len(current.rows) || current.end-current.start <= holdTime) {
				carry++
			}
		}
		before, current = current, before
	}
	return carry > 0 && 2*carry >= follow
}

// unroll calls yield with the lines that each cue of a scrolling track adds, and the times from and until which they
// are shown.
func unroll(cues []Cue, yield func(start, end time.Duration, text string)) {
	var before, current view
	var start, end time.Duration
	text := ""
	for _, c := range cues {
		current.look(c)
		if len(current.rows) == 0 {
			continue
		}
		k := current.carried(&before)
		if k == len(current.rows) {
			end = max(end, current.end) // the cue only repeats lines
		} else {
			if text != "" {
				yield(start, end, text)
			}
			start, end, text = current.start, current.end, join(current.rows[k:])
		}
		before, current = current, before
	}
	if text != "" {
		yield(start, end, text)
	}
}

func join(rows []row) string {
	if len(rows) == 1 {
		return rows[0].text
	}
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = r.text
	}
	return strings.Join(texts, " ")
}

// Plain returns the text of the cue as it is read out: one line without markup, with character references replaced, and
// with single spaces where there was space, a line break or a control character.
func (c Cue) Plain() string {
	switch c.Format {
	case FormatWebVTT:
		return squeeze(textOf(c.Text))
	case FormatSRT:
		return squeeze(unescape(untagged(c.Text)))
	case FormatText:
	}
	return squeeze(c.Text)
}

// textOf returns the text of a WebVTT cue without its markup.
func textOf(text string) string {
	if strings.IndexByte(text, '<') < 0 {
		return unescape(text)
	}
	var b strings.Builder
	for said := range pieces(text) {
		b.WriteString(said)
	}
	return b.String()
}

// pieces takes the text of a WebVTT cue apart (section 6.4 of the rules, the "cue text tokenizer"): text, with character
// references replaced, and the tag after it. A tag goes from "<" to the next ">", or to the end.
func pieces(text string) iter.Seq2[string, string] {
	return func(yield func(said, tag string) bool) {
		for rest := text; rest != ""; {
			said, after, _ := strings.Cut(rest, "<")
			var tag string
			if tag, rest, _ = strings.Cut(after, ">"); !yield(unescape(said), tag) {
				return
			}
		}
	}
}

// untagged removes markup that players know in SRT: tags of HTML and the overrides of SubStation Alpha in braces.
// Anything else in angle brackets is text.
func untagged(text string) string {
	if !strings.ContainsAny(text, "<{") {
		return text
	}
	var b strings.Builder
	for {
		i := strings.IndexAny(text, "<{")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		text = text[i:]
		size := srtTag(text)
		if size == 0 {
			b.WriteByte(text[0])
			size = 1
		}
		text = text[size:]
	}
}

// maxSRTTag is longer than any tag in use. It keeps a text full of brackets from being searched over and over.
const maxSRTTag = 256

// srtTag returns the length of the tag at the start of text, 0 when there is none.
func srtTag(text string) int {
	window := text[:min(len(text), maxSRTTag)]
	if text[0] == '{' {
		if end := strings.IndexByte(window, '}'); strings.HasPrefix(window, `{\`) && end > 0 {
			return end + 1
		}
		return 0
	}
	end := strings.IndexByte(window, '>')
	if end < 0 {
		return 0
	}
	name := strings.TrimPrefix(window[1:end], "/")
	if i := strings.IndexAny(name, " \t\n"); i >= 0 {
		name = name[:i]
	}
	switch strings.ToLower(strings.TrimSuffix(name, "/")) {
	case "b", "br", "font", "i", "s", "span", "strike", "u":
		return end + 1
	}
	return 0
}

// squeeze returns text with one space in place of each run of space and control characters, and none at the ends.
func squeeze(text string) string {
	if squeezed(text) {
		return text
	}
	return strings.Join(strings.FieldsFunc(text, isGap), " ")
}

// squeezed reports whether squeeze would change nothing, as is the case for most texts.
func squeezed(text string) bool {
	gap := true
	for _, r := range text {
		if r == ' ' && !gap {
			gap = true
			continue
		}
		if isGap(r) {
			return false
		}
		gap = false
	}
	return !gap || text == ""
}

func isGap(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

const (
	// maxNoteBytes and maxNoteWords bound a note of a sound. A longer text in brackets is content.
	maxNoteBytes = 80
	maxNoteWords = 5
)

// withoutSounds removes notes of sounds such as "[Music]" or "[upbeat music playing]", and notes of music. A note is short and
// has no digit, so that [add 2 cups of flour] stays. The text must have single spaces, as the result has.
func withoutSounds(text string) string {
	if !strings.ContainsAny(text, "]♩♪♫♬") {
		return text
	}
	kept := make([]byte, 0, len(text))
	var open []int // the positions in kept of the brackets that are not closed
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		from, drop := len(kept), false
		switch r {
		case '♩', '♪', '♫', '♬':
			drop = true
		case '[':
			open = append(open, len(kept))
		case ']':
			if len(open) > 0 {
				from = open[len(open)-1]
				open = open[:len(open)-1]
				drop = isNote(kept[from+1:])
			}
		}
		if drop {
			kept = kept[:from]
		} else {
			kept = append(kept, text[i:i+size]...)
		}
		i += size
		if drop && (len(kept) == 0 || kept[len(kept)-1] == ' ') && i < len(text) && text[i] == ' ' {
			i++
		}
	}
	return strings.TrimSpace(string(kept))
}

func isNote(content []byte) bool {
	if len(content) > maxNoteBytes {
		return false
	}
	words := strings.Fields(string(content))
	return len(words) <= maxNoteWords && !strings.ContainsFunc(string(content), unicode.IsDigit)
}
