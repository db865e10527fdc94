package caption

import (
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxSentence = 15 * time.Second
	// maxSentenceBytes ends a sentence in text without times.
	maxSentenceBytes = 1000
	// pauseTime ends a sentence: people breathe in less.
	pauseTime = time.Second
)

// sentences joins segments until one ends like a sentence, there is a pause, or it becomes too long. The times stay those of
// the cues: a segment is never split, because nobody knows when its second half is said.
func sentences(segments []Segment, timed bool) []Segment {
	joined := segments[:0]
	var parts []string
	size := 0
	flush := func() {
		if len(parts) > 1 {
			joined[len(joined)-1].Text = strings.Join(parts, " ")
		}
		parts, size = parts[:0], 0
	}
	for _, next := range segments {
		if len(parts) > 0 {
			last := &joined[len(joined)-1]
			end := last.Start + last.Dur
			full := size+len(next.Text) > maxSentenceBytes ||
				timed && (next.Start-end > pauseTime || next.Start+next.Dur-last.Start > maxSentence)
			if !full && !endsSentence(parts[len(parts)-1]) {
				last.Dur = max(end, next.Start+next.Dur) - last.Start
				parts = append(parts, next.Text)
				size += len(next.Text)
				continue
			}
			flush()
		}
		joined = append(joined, next)
		parts, size = append(parts, next.Text), len(next.Text)
	}
	flush()
	return joined
}

// endsSentence reports whether a text ends with a mark that ends a sentence, quotes and brackets after it left aside.
func endsSentence(text string) bool {
	text = strings.TrimRight(text, `"'”’»)]}`)
	last, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune(".!?…。！？؟।", last) && text != ""
}
