package caption

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

const (
	// holdTime is the longest duration of a cue that only repeats the line before. In practice it is 10 ms.
	holdTime = 100 * time.Millisecond
	// maxWindow is the largest number of lines that are compared. Captions that scroll show two to four.
	maxWindow = 16
	// seamTime is the longest pause between two cues of which the second continues the first.
	seamTime = 500 * time.Millisecond
)

// view is a cue as it is seen on the screen.
type view struct {
	Cue

	lead    bool     // the first line is blank: no line is repeated
	rows    []string // the lines that are not blank
	stamped []bool   // by row: some of its words have times, so it is not a repetition
}

// views yields a view of each cue that has text, and the view before, which has no rows at first. Both are reused.
func views(cues []Cue) iter.Seq2[*view, *view] {
	const stamp = "\x00" // no text has it
	return func(yield func(current, before *view) bool) {
		before, v := &view{}, &view{}
		for _, c := range cues {
			*v = view{Cue: c, rows: v.rows[:0], stamped: v.stamped[:0]}
			text := c.spoken(stamp)
			first, _, _ := strings.Cut(text, "\n")
			v.lead = strings.TrimFunc(first, isGap) == ""
			for line := range strings.SplitSeq(text, "\n") {
				if text := squeeze(strings.ReplaceAll(line, stamp, "")); text != "" {
					v.rows, v.stamped = append(v.rows, text), append(v.stamped, strings.Contains(line, stamp))
				}
			}
			if len(v.rows) == 0 {
				continue
			}
			if !yield(v, before) {
				return
			}
			before, v = v, before
		}
	}
}

// carried returns the number of lines at the start of v that repeat the end of the cue before: the largest number of
// leading lines that equal as many last lines of before. After a pause a cue has to add a line. A cue that only repeats
// lines was then spoken again.
func (v *view) carried(before *view) int {
	if v.lead || v.Start < before.Start {
		return 0
	}
	most := min(len(v.rows), len(before.rows), maxWindow)
	if !v.follows(before) {
		most = min(most, len(v.rows)-1)
	}
	for k := most; k > 0; k-- {
		if slices.Equal(v.rows[:k], before.rows[len(before.rows)-k:]) && !slices.Contains(v.stamped[:k], true) {
			return k
		}
	}
	return 0
}

// follows reports whether there is a cue before, and no pause between them.
func (v *view) follows(before *view) bool {
	return len(before.rows) > 0 && v.Start <= before.End+seamTime
}

// extends reports whether v has the lines of the cue before, and more words in the last of them.
func (v *view) extends(before *view) bool {
	last := len(v.rows) - 1
	if len(before.rows) != last+1 || v.Start < before.Start || v.stamped[last] || !slices.Equal(v.rows[:last], before.rows[:last]) {
		return false
	}
	more, ok := strings.CutPrefix(v.rows[last], before.rows[last])
	return ok && more != ""
}

// scrolls reports whether cues scroll. Of the cues that follow another without a pause, at least half then repeat its
// end, and either add a line or are shown for a moment only. In other tracks a repeated line is spoken twice.
func scrolls(cues []Cue) bool {
	follow, carry := 0, 0
	for v, before := range views(cues) {
		if v.follows(before) {
			follow++
			if k := v.carried(before); k > 0 && (k < len(v.rows) || v.End-v.Start <= holdTime) {
				carry++
			}
		}
	}
	return carry > 0 && 2*carry >= follow
}

// distinct returns cues without those that are there twice, as in segments of a stream that were joined: with the text of an earlier one
// that is still shown.
func distinct(cues []Cue) (out []Cue) {
	for i, c := range cues {
		if !slices.ContainsFunc(cues[max(0, i-maxWindow):i], func(earlier Cue) bool {
			return c.Text == earlier.Text && (c.Start == earlier.Start || c.Start > earlier.Start && c.Start < earlier.End)
		}) {
			out = append(out, c)
		}
	}
	return out
}

// grown returns the cues of a track that is written word by word without those that the next one repeats and goes on. Of the cues that
// follow another without a pause, at least half do so. In other tracks a word is spoken twice.
func grown(cues []Cue) (out []Cue) {
	follow, grew := 0, 0
	for v, before := range views(cues) {
		c := v.Cue
		if v.follows(before) {
			follow++
			if v.extends(before) {
				grew++
				last := len(out) - 1
				c.Start, out = out[last].Start, out[:last]
			}
		}
		out = append(out, c)
	}
	if 2*grew < follow {
		return cues
	}
	return out
}

// unroll calls yield with the lines that each cue of a scrolling track adds, and the times from and until which they
// are shown. A text may be empty.
func unroll(cues []Cue, yield func(start, end time.Duration, text string)) {
	var start, end time.Duration
	text := ""
	for v, before := range views(cues) {
		k := v.carried(before)
		if k == len(v.rows) {
			end = max(end, v.End) // the cue only repeats lines
			continue
		}
		yield(start, end, text)
		start, end, text = v.Start, v.End, strings.Join(v.rows[k:], " ")
	}
	yield(start, end, text)
}

// Plain returns the text of the cue as it is read out: one line without markup, with character references replaced, and
// with single spaces where there was space, a line break or a control character.
func (c Cue) Plain() string { return squeeze(c.spoken("")) }

// spoken returns the text without its markup, and with stamp for each time within.
func (c Cue) spoken(stamp string) string {
	switch c.Format {
	case FormatText:
		return c.Text
	case FormatSRT:
		return unescape(untagged(c.Text))
	case FormatWebVTT:
	}
	var b strings.Builder
	for rest := c.Text; rest != ""; { // the "cue text tokenizer" (section 6.4 of the rules): a tag goes to the next ">", or to the end
		said, after, _ := strings.Cut(rest, "<")
		b.WriteString(unescape(said))
		var tag string
		if tag, rest, _ = strings.Cut(after, ">"); stamp != "" && vttTag.MatchString(tag) {
			b.WriteString(stamp)
		}
	}
	return b.String()
}

// srtTag is the markup that players know in SRT: tags of HTML and the overrides of SubStation Alpha in braces. Anything else in
// angle brackets is text.
var srtTag = lazyregexp.New(`(?i)\{\\[^{}]*\}|</?(?:b|br|font|i|s|span|strike|u)/?(?:[ \t\n][^<>]*)?>`)

func untagged(text string) string {
	if !strings.ContainsAny(text, "<{") {
		return text
	}
	return srtTag.ReplaceAllString(text, "")
}

// squeeze returns text with one space in place of each run of space and control characters, and none at the ends.
func squeeze(text string) string { return strings.Join(strings.FieldsFunc(text, isGap), " ") }

func isGap(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

const (
	// lineBreak is a line break in SubViewer's files.
	lineBreak = "[br]"

	// maxNoteBytes and maxNoteWords bound a note of a sound. A longer text in brackets is content.
	maxNoteBytes = 80
	maxNoteWords = 5
)

// sounds matches words of notes in round brackets, which else have content: "(chopped)".
var sounds = lazyregexp.New(`(?i)(?:^|[^\pL])(?:music|appla[uv]|` +
	`laugh|chuckl|giggl|sigh|cheering|clapping|cough|gasp|sizzl|whoosh|beep|inaudible|` +
	`musik|gelächter|lachen|lacht|seufzt|unverständlich|musique|rires|soupir|música|risas|aplausos|risos|musica|risate|muziek|gelach|zucht|` +
	`muzyka|śmiech|oklaski|skratt|hudba|smích|potlesk|zene|nevetés|müzik|alkış|музыка|смех|аплодисменты|вздох|музика|сміх|оплески|` +
	`μουσική|γέλια|מוזיקה|צחוק|כפיים|موسيقى|ضحك|تصفيق|音楽|音乐|音樂|笑|拍手|掌声|掌聲|음악|웃음|박수)`)

// withoutSounds removes notes of sounds such as "[Music]" or "(upbeat music playing)", and notes of music. A note is short and
// has no digit, so that [add 2 cups of flour] stays, and one in round brackets names a sound. The text must have single spaces, as the
// result has.
func withoutSounds(text string) string {
	if strings.Contains(text, lineBreak) {
		text = strings.Join(strings.Fields(strings.ReplaceAll(text, lineBreak, " ")), " ")
	}
	if !strings.ContainsAny(text, "])）♩♪♫♬") {
		return text
	}
	kept := make([]byte, 0, len(text))
	var open []int // the positions in kept of the brackets that are not closed
	for _, r := range text {
		from := len(kept)
		drop := strings.ContainsRune("♩♪♫♬", r) || r == ' ' && (from == 0 || kept[from-1] == ' ')
		switch last := len(open) - 1; {
		case strings.ContainsRune("[(（", r):
			open = append(open, from)
		case strings.ContainsRune("])）", r) && last >= 0:
			from, open = open[last], open[:last]
			_, bracket := utf8.DecodeRune(kept[from:])
			content := kept[from+bracket:]
			drop = len(content) <= maxNoteBytes && len(bytes.Fields(content)) <= maxNoteWords &&
				!bytes.ContainsFunc(content, unicode.IsDigit) && (r == ']' || sounds.Match(content))
		}
		if drop {
			kept = kept[:from]
		} else {
			kept = utf8.AppendRune(kept, r)
		}
	}
	return strings.TrimSpace(string(kept))
}
