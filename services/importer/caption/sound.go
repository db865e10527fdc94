package caption

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxNoteBytes and maxNoteWords are the longest note of a sound. What is longer in brackets is content.
	maxNoteBytes = 80
	maxNoteWords = 5
)

// withoutSounds removes notes of sounds such as [Music] or [upbeat music playing], and notes of music. A note is short and
// has no digit, so that [add 2 cups of flour] stays. The text has single spaces, and so has what is returned.
func withoutSounds(text string) string {
	if !strings.ContainsAny(text, "]♩♪♫♬") {
		return text
	}
	kept := make([]byte, 0, len(text))
	var open []int // where the brackets that are not closed are in kept
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
