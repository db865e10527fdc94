package caption

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/lazyregexp"
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
		if _, meant, _ := w.times(line); meant {
			w.in.unread() // a header ends where a cue begins, with or without an empty line
			return
		}
		if m := language.FindSubmatch(line); m != nil {
			w.track.Language = string(m[1])
		}
	}
}

// language matches the line of a header in which automatic captions declare it. The line is not in the rules, so its value counts only if
// it is one word.
var language = lazyregexp.New(`(?i)^\s*language\s*:\s*([\w-]{0,64})\s*$`)

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

// times reads a line of times by the rules, which count any line with an arrow as one, or as people write it.
func (w *webVTT) times(line []byte) (s span, meant, good bool) {
	if w.in.limits.Lenient {
		return readTimes(line)
	}
	m := vttLine.FindSubmatch(line)
	if m != nil {
		s.start, s.end = duration(m[1:5]), duration(m[5:])
	}
	return s, bytes.Contains(line, arrow), m != nil
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
		at, meant, good := w.times(line)
		joined := w.in.limits.Lenient && w.have && isWebVTT(line) // the next of several files in one
		if !meant && !joined {
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
		if !good && w.in.limits.Lenient {
			w.in.refuse(line)
			return
		} else if !good {
			w.track.Skipped++
			continue
		}
		cut := w.Truncated || w.in.short
		id := w.finish(Cue{}, true).Text
		w.Cue = Cue{ID: id, Start: at.start, End: at.end, Format: FormatWebVTT, Line: w.in.number, Truncated: cut}
		if len(at.text) > 0 {
			w.add(at.text, w.in.number, w.in.short)
		}
	}
}

// subRip reads SRT. There is no standard, so it takes the variants found in practice: times as readTimes reads them, missing or
// repeated numbers, missing empty lines, empty lines in a text, coordinates or the text after the times. It also reads SBV, which is the
// same without numbers and arrows.
type subRip struct {
	unfinished

	held     []byte // the last line, which is the number of the next cue when the times follow
	heldAt   int    // the number of the held line
	holding  bool
	numbered bool // the first cue has a number
	seen     bool // the first cue was seen
}

// next returns the next cue. A cue is complete when the times of the next one are read.
func (s *subRip) next() (Cue, bool) {
	for {
		line, ok := s.in.next()
		line = bytes.TrimFunc(line, isMargin)
		at, meant, good := readTimes(line)
		if meant && !good {
			s.number() // the number of this cue is not text
			s.in.refuse(line)
			ok = false
		}
		if !ok {
			s.release()
			complete := s.have
			return s.finish(Cue{}, false), complete
		}
		if len(line) == 0 {
			s.release()
			continue
		}
		if !meant {
			s.release()
			s.held, s.heldAt, s.holding = line, s.in.number, true
			s.Truncated = s.Truncated || s.in.short
			continue
		}
		id := cmp.Or(at.id, s.number())
		s.release()
		complete, short := s.have, s.in.short
		cue := s.finish(Cue{ID: id, Start: at.start, End: at.end, Format: FormatSRT, Line: s.in.number}, true)
		if len(at.text) > 0 {
			s.add(at.text, s.in.number, short)
		}
		if complete {
			return cue, true
		}
	}
}

// release appends the held line to the text, because no times follow the line.
func (s *subRip) release() {
	if s.holding && s.have {
		s.add(s.held, s.heldAt, false)
	}
	s.holding = false
}

// number returns the number of the cue whose times were just read. In a file without numbers a line of digits is
// text.
func (s *subRip) number() string {
	isNumber := s.holding && numberLine.Match(s.held)
	if !s.seen {
		s.seen, s.numbered = true, isNumber
	}
	if !isNumber || !s.numbered {
		return ""
	}
	s.holding = false
	return string(s.held)
}

// maxStamp stands for a stamp that is longer than a time.Duration can be, some 292 years.
const maxStamp = time.Duration(math.MaxInt64 - math.MaxInt64%int64(time.Millisecond))

// vttStamp is a WebVTT timestamp (section 6.3 of the rules, "collect a WebVTT timestamp"): hours of any length or none.
const vttStamp = `(?:(\d+):)?([0-5]\d):([0-5]\d)\.(\d{3})`

var (
	// vttLine is a line of "collect WebVTT cue timings and settings". The text after the second time has settings, which cannot
	// invalidate the line.
	vttLine = lazyregexp.New(`^\s*` + vttStamp + `\s*-->\s*` + vttStamp + `(?:\D|$)`)
	vttTag  = lazyregexp.New(`^` + vttStamp + `$`)
	// numberLine is the number of a cue of SRT, alone on its line.
	numberLine = lazyregexp.New(`^\p{Nd}{1,9}$`)
	// textStamp is a stamp as Transcript.WriteText writes it: seconds without leading zeros and two decimals.
	textStamp = lazyregexp.New(`^\[()()(0|[1-9]\d{0,9})\.(\d\d)s\](?: |$)`)
	// clockStamp is a stamp as players show it, such as 0:12 or [1:02:03], before or above its text.
	clockStamp = lazyregexp.New(`^[\[(]?((?:\p{Nd}{1,2}[:：])?\p{Nd}{1,3}[:：]\p{Nd}{2}(?:[.,]\p{Nd}{1,3})?)[\])]?(?: ?[-–—|:]? |$)`)
)

// duration returns the duration of a stamp's hours, minutes, seconds and fraction, at most maxStamp.
func duration(parts [][]byte) time.Duration {
	number := func(digits string) int64 {
		n, err := strconv.ParseInt("0"+digits, 10, 64)
		if err != nil || n > 1<<40 {
			return 1 << 40 // more than maxStamp, whatever the unit
		}
		return n
	}
	seconds := number(string(parts[0]))*3600 + number(string(parts[1]))*60 + number(string(parts[2]))
	if seconds >= int64(maxStamp/time.Second) {
		return maxStamp
	}
	return time.Duration(seconds)*time.Second + time.Duration(number((string(parts[3]) + "000")[:3]))*time.Millisecond
}
