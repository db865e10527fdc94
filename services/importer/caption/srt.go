package caption

import (
	"bytes"
	"time"
)

// subRip reads SRT. There is no standard, so it takes the variants found in practice: a full stop or a colon for the
// comma, missing or repeated numbers, missing empty lines, empty lines in a text, hours left out, coordinates after the
// times.
type subRip struct {
	unfinished

	held     []byte // the last line, which is the number of the next cue when the times follow
	heldAt   int    // the number of the held line
	holding  bool
	numbered bool // the first cue has a number
	seen     bool // the first cue was seen
	track    *Track
}

// next returns the next cue. A cue is complete when the times of the next one are read.
func (s *subRip) next() (Cue, bool) {
	for {
		line, ok := s.in.next()
		if !ok {
			s.release()
			complete := s.have
			return s.finish(Cue{}, false), complete
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			s.release()
			continue
		}
		start, end, kind := srtTimings(line)
		if kind == notTimings {
			s.release()
			s.held, s.heldAt, s.holding = line, s.in.number, true
			s.Truncated = s.Truncated || s.in.short
			continue
		}
		id := s.number()
		s.release()
		if kind == badTimings {
			s.track.Skipped++
		}
		complete := s.have
		cue := s.finish(Cue{ID: id, Start: start, End: end, Format: FormatSRT, Line: s.in.number}, kind == goodTimings)
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
	isNumber := s.holding && len(s.held) < 10 && len(bytes.Trim(s.held, "0123456789")) == 0
	if !s.seen {
		s.seen, s.numbered = true, isNumber
	}
	if !isNumber || !s.numbered {
		return ""
	}
	s.holding = false
	return string(s.held)
}

const (
	notTimings = iota
	badTimings
	goodTimings
)

// srtTimings reads a line of times, from its start to the end of the second one.
func srtTimings(line []byte) (start, end time.Duration, kind int) {
	if line[0] < '0' || line[0] > '9' || !bytes.Contains(line, arrow) {
		return 0, 0, notTimings
	}
	s := scanner{text: line}
	start, ok := s.srtStamp()
	s.space()
	if !ok || !s.arrow() {
		return 0, 0, badTimings
	}
	s.space()
	if end, ok = s.srtStamp(); !ok {
		return 0, 0, badTimings
	}
	return start, end, goodTimings
}

// srtStamp reads [hours:]minutes:seconds and, after a comma, a full stop or a colon, up to three digits that count.
func (s *scanner) srtStamp() (time.Duration, bool) {
	var parts [3]int64
	n := 0
	for ; n < len(parts); n++ {
		if n > 0 && !s.is(':') {
			break
		}
		value, length := s.digits()
		if length == 0 || n > 0 && length > 2 {
			return 0, false
		}
		parts[n] = value
	}
	switch n {
	case 1:
		return 0, false
	case 2:
		parts = [3]int64{0, parts[0], parts[1]}
	}
	millis := int64(0)
	if s.is(',') || s.is('.') || s.is(':') {
		from := s.pos
		if _, length := s.digits(); length == 0 {
			return 0, false
		}
		for i, unit := from, int64(100); i < s.pos && unit > 0; i, unit = i+1, unit/10 {
			millis += unit * int64(s.text[i]-'0')
		}
	}
	if parts[1] > 59 || parts[2] > 59 {
		return 0, false
	}
	return duration(parts[0], parts[1], parts[2], millis), true
}
