package caption

import (
	"bytes"
	"regexp"
	"strings"
)

const signature = "WEBVTT"

var arrow = []byte("-->")

// webVTT reads the blocks of a WebVTT file as section 6.1 of the rules specifies.
type webVTT struct {
	unfinished

	track *Track
}

// isWebVTT reports whether the first line is the signature of a WebVTT file.
func isWebVTT(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, []byte(signature))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// start skips the signature, which isWebVTT has found, and the header.
func (w *webVTT) start() {
	w.in.next()
	for line, ok := w.in.next(); ok && len(line) > 0; line, ok = w.in.next() {
		if bytes.Contains(line, arrow) {
			w.in.unread() // a header ends where a cue begins, with or without an empty line
			return
		}
		w.header(line)
	}
}

// word matches a language tag, a kind, and nothing.
var word = regexp.MustCompile(`^[\w-]{0,64}$`)

// header keeps the kind and the language that automatic captions declare. These lines are not in the rules, so a
// value counts only if it is one word.
func (w *webVTT) header(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if value = bytes.TrimSpace(value); !word.Match(value) {
		return
	}
	switch strings.ToLower(string(bytes.TrimSpace(name))) {
	case "kind":
		w.track.Kind = string(value)
	case "language":
		w.track.Language = string(value)
	}
}

// next returns the next cue. It skips empty lines and other blocks, such as comments.
func (w *webVTT) next() (Cue, bool) {
	for line, ok := w.in.next(); ok; line, ok = w.in.next() {
		if len(line) == 0 {
			continue
		}
		w.in.unread()
		w.block()
		if w.have {
			return w.finish(Cue{}, false), true
		}
	}
	return Cue{}, false
}

// block reads a block ("collect a WebVTT block").
func (w *webVTT) block() {
	w.finish(Cue{}, false)
	seenArrow := false
	for count := 1; ; count++ {
		line, ok := w.in.next()
		if !ok || len(line) == 0 {
			return
		}
		if !bytes.Contains(line, arrow) {
			if w.have || count == 1 { // skips further lines of a block without timings
				w.add(line, w.in.number, w.in.short)
			}
			continue
		}
		if count > 2 || seenArrow {
			w.in.unread() // the next block begins here
			return
		}
		seenArrow = true
		start, end, good := timings(vttLine, line)
		if !good {
			w.track.Skipped++
			continue
		}
		cut := w.Truncated || w.in.short
		id := w.finish(Cue{}, true).Text
		w.Cue = Cue{ID: id, Start: start, End: end, Format: FormatWebVTT, Line: w.in.number, Truncated: cut}
	}
}
