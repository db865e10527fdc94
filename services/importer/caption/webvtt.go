package caption

import (
	"bytes"
	"io"
	"strings"
	"time"
)

const signature = "WEBVTT"

var arrow = []byte("-->")

// webVTT reads the blocks of a WebVTT file as section 6.1 of the rules specifies.
type webVTT struct {
	in     *lines
	track  *Track
	text   []byte // of the block that is being read
	maxCue int
}

// isWebVTT reports whether the first line is the signature of a WebVTT file.
func isWebVTT(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, []byte(signature))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// start skips the signature, which isWebVTT has found, and the header.
func (w *webVTT) start() error {
	if _, err := w.in.next(); err != nil {
		return err
	}
	for {
		line, err := w.in.next()
		if err != nil || len(line) == 0 {
			return err
		}
		if bytes.Contains(line, arrow) {
			w.in.unread() // a header ends where a cue begins, with or without an empty line
			return nil
		}
		w.header(line)
	}
}

// header keeps the kind and the language that automatic captions declare. These lines are not in the rules, so a
// value counts only if it is one word.
func (w *webVTT) header(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	word := string(bytes.TrimSpace(value))
	if len(value) > 64 || strings.ContainsFunc(word, notInWord) {
		return
	}
	switch name = bytes.TrimSpace(name); {
	case bytes.EqualFold(name, []byte("Kind")):
		w.track.Kind = word
	case bytes.EqualFold(name, []byte("Language")):
		w.track.Language = word
	}
}

// notInWord reports whether r ends a language tag or a kind.
func notInWord(r rune) bool { return r >= 0x80 || !isAlphanumeric(byte(r)) && r != '-' && r != '_' } //nolint:gosec // below 0x80

// next returns the next cue.
func (w *webVTT) next() (Cue, error) {
	for {
		line, err := w.in.next()
		if err != nil {
			return Cue{}, err
		}
		if len(line) == 0 {
			continue
		}
		w.in.unread()
		if cue, ok, err := w.block(); ok || err != nil {
			return cue, err
		}
	}
}

// block reads a block ("collect a WebVTT block") and reports whether it is a cue. It skips other blocks, such as
// comments.
func (w *webVTT) block() (cue Cue, ok bool, err error) {
	w.text = w.text[:0]
	seenArrow, cut := false, false
	for count := 1; ; count++ {
		line, err := w.in.next()
		if err == io.EOF || err == nil && len(line) == 0 { //nolint:errorlint // lines returns it bare
			break
		}
		if err != nil {
			return Cue{}, false, err
		}
		if bytes.Contains(line, arrow) {
			if count > 2 || seenArrow {
				w.in.unread() // the next block begins here
				break
			}
			seenArrow = true
			start, end, good := timings(line)
			if !good {
				w.track.Skipped++
				continue
			}
			cue, ok = Cue{ID: string(w.text), Start: start, End: end, Format: FormatWebVTT, Line: w.in.number}, true
			w.text, cut = w.text[:0], cut || w.in.short
			continue
		}
		if ok || count == 1 { // skips further lines of a block without timings
			cut = w.add(line) || cut
		}
	}
	if ok {
		cue.Text, cue.Truncated = string(w.text), cut
	}
	return cue, ok, nil
}

// add appends a line to the text of the block, and reports whether a part of the line was cut.
func (w *webVTT) add(line []byte) (cut bool) {
	w.text, cut = addLine(w.text, line, w.maxCue)
	if cut {
		w.in.cut("MaxCueBytes", int64(w.maxCue), w.in.number)
	}
	return cut || w.in.short
}

// addLine appends a line to a text of several lines that is at most limit bytes long.
func addLine(text, line []byte, limit int) (longer []byte, cut bool) {
	room := limit - len(text)
	if len(text) > 0 {
		room--
		if room < 0 {
			return text, true
		}
		text = append(text, '\n')
	}
	if len(line) > room {
		return append(text, wholeRunes(line[:room])...), true
	}
	return append(text, line...), false
}

// timings reads the line with the arrow ("collect WebVTT cue timings and settings"). The text after the second time
// has settings, which cannot invalidate the line.
func timings(line []byte) (start, end time.Duration, ok bool) {
	s := scanner{text: line}
	s.space()
	if start, ok = s.stamp(); !ok {
		return 0, 0, false
	}
	s.space()
	if !s.arrow() {
		return 0, 0, false
	}
	s.space()
	end, ok = s.stamp()
	return start, end, ok
}
