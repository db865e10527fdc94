package caption

import (
	"bytes"
	"io"
	"time"
)

// subRip reads SRT. There is no standard, so it takes the variants found in practice: a full stop or a colon for the
// comma, missing or repeated numbers, missing empty lines, empty lines in a text, hours left out, coordinates after the
// times.
type subRip struct {
	in     *lines
	track  *Track
	maxCue int

	cue      Cue    // the cue whose text is being read
	cut      bool   // its text was cut
	have     bool   // there is such a cue
	held     []byte // the last line, which is the number of the next cue when the times follow
	heldAt   int    // the number of the held line
	holding  bool
	numbered bool // the first cue has a number
	seen     bool // the first cue was seen
	text     []byte
}

// next returns the next cue. A cue is complete when the times of the next one are read.
func (s *subRip) next() (Cue, error) {
	for {
		line, err := s.in.next()
		if err != nil {
			if err == io.EOF && s.have { //nolint:errorlint // lines returns it bare
				return s.finish(Cue{}, false), nil
			}
			return Cue{}, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			s.release()
			continue
		}
		start, end, kind := srtTimings(line)
		if kind == notTimings {
			s.release()
			s.held, s.heldAt, s.holding = append(s.held[:0], line...), s.in.number, true
			s.cut = s.cut || s.in.short
			continue
		}
		id := s.number()
		complete := s.have
		next := Cue{ID: id, Start: start, End: end, Format: FormatSRT, Line: s.in.number}
		if kind == badTimings {
			s.track.Skipped++
		}
		if cue := s.finish(next, kind == goodTimings); complete {
			return cue, nil
		}
	}
}

// release appends the held line to the text, because no times follow the line.
func (s *subRip) release() {
	if !s.holding {
		return
	}
	s.holding = false
	if !s.have {
		return
	}
	var cut bool
	if s.text, cut = addLine(s.text, s.held, s.maxCue); cut {
		s.in.cut("MaxCueBytes", int64(s.maxCue), s.heldAt)
		s.cut = true
	}
}

// number returns the number of the cue whose times were just read. In a file without numbers a line of digits is
// text.
func (s *subRip) number() string {
	isNumber := s.holding && len(s.held) < 10 && len(bytes.Trim(s.held, "0123456789")) == 0
	if !s.seen {
		s.seen, s.numbered = true, isNumber
	}
	if isNumber && s.numbered {
		s.holding = false
		return string(s.held)
	}
	s.release()
	return ""
}

// finish returns the cue that was being read, and begins the next cue, if there is one.
func (s *subRip) finish(next Cue, have bool) Cue {
	s.release()
	done := s.cue
	done.Text, done.Truncated = string(s.text), s.cut
	s.cue, s.have, s.cut, s.text = next, have, false, s.text[:0]
	return done
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
