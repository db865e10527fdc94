package caption

import "bytes"

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
		if !hasTimings(line) {
			s.release()
			s.held, s.heldAt, s.holding = line, s.in.number, true
			s.Truncated = s.Truncated || s.in.short
			continue
		}
		id := s.number()
		s.release()
		start, end, good := timings(srtLine, line)
		if !good {
			s.track.Skipped++
		}
		complete := s.have
		cue := s.finish(Cue{ID: id, Start: start, End: end, Format: FormatSRT, Line: s.in.number}, good)
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

// hasTimings reports whether a line that is not empty is meant to be a line of times.
func hasTimings(line []byte) bool {
	return line[0] >= '0' && line[0] <= '9' && bytes.Contains(line, arrow)
}
