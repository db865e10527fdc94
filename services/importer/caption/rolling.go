package caption

import (
	"strings"
	"time"
)

const (
	// holdTime is the longest time for which a cue is shown that only holds the line before; it is 10 ms in practice.
	holdTime = 100 * time.Millisecond
	// maxWindow is the largest number of lines that are compared. Captions that scroll show two to four.
	maxWindow = 16
	// seamTime is how far apart two cues may be when one continues the other.
	seamTime = 500 * time.Millisecond
)

// row is a line of a cue.
type row struct {
	stamped bool // words in it carry times, so it is said here for the first time
	text    string
}

// view is a cue as it is seen on the screen.
type view struct {
	end, start time.Duration
	lead       bool // the first line is blank: nothing was carried over
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
			stamped = stamped || isStamp(tag)
		}
	} else {
		write(unescape(untagged(c.Text)))
	}
	flush()
}

// carried returns how many lines at the start of v repeat the end of the cue before it: the largest number of leading lines
// that equal as many last lines of before. After a pause a cue has to add something for that: one that only repeats says it
// again.
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

// repeats reports whether v begins with the rows, none of them said anew.
func (v *view) repeats(rows []row) bool {
	for i, r := range rows {
		if v.rows[i].stamped || v.rows[i].text != r.text {
			return false
		}
	}
	return true
}

// scrolls reports whether cues scroll: whether at least half of those that follow another without a pause show the end of
// it once more, and then either add to it or hold it for a moment. In other tracks a repeated line is a line said twice.
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

// unroll calls yield with what each cue of a track that scrolls adds, and the time until which it is held.
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
			end = max(end, current.end) // held, no more
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
