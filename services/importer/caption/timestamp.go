package caption

import (
	"bytes"
	"math"
	"time"
)

// maxStamp stands for a stamp that is longer than a time.Duration can be, some 292 years.
const maxStamp = time.Duration(math.MaxInt64 - math.MaxInt64%int64(time.Millisecond))

// scanner walks over one line.
type scanner struct {
	text []byte
	pos  int
}

// space skips the ASCII whitespace of HTML.
func (s *scanner) space() {
	for s.pos < len(s.text) && isSpace(s.text[s.pos]) {
		s.pos++
	}
}

// is skips the byte c and reports whether it was there.
func (s *scanner) is(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// arrow skips "-->" and reports whether it was there.
func (s *scanner) arrow() bool {
	if !bytes.HasPrefix(s.text[s.pos:], arrow) {
		return false
	}
	s.pos += len(arrow)
	return true
}

// digits reads a run of ASCII digits, and returns its value, at most the largest int64, and its length.
func (s *scanner) digits() (value int64, length int) {
	from := s.pos
	for ; s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9'; s.pos++ {
		if value > (math.MaxInt64-9)/10 {
			value = math.MaxInt64
			continue
		}
		value = 10*value + int64(s.text[s.pos]-'0')
	}
	return value, s.pos - from
}

// stamp reads a WebVTT timestamp (section 6.3 of the rules, "collect a WebVTT timestamp"): hours of any length or none, two
// digits of minutes and of seconds up to 59, a full stop, three digits.
func (s *scanner) stamp() (time.Duration, bool) {
	first, length := s.digits()
	if length == 0 || !s.is(':') {
		return 0, false
	}
	withHours := length != 2 || first > 59
	second, length := s.digits()
	if length != 2 {
		return 0, false
	}
	hours, minutes, seconds := int64(0), first, second
	if withHours || s.pos < len(s.text) && s.text[s.pos] == ':' {
		if !s.is(':') {
			return 0, false
		}
		third, length := s.digits()
		if length != 2 {
			return 0, false
		}
		hours, minutes, seconds = first, second, third
	}
	if !s.is('.') {
		return 0, false
	}
	millis, length := s.digits()
	if length != 3 || minutes > 59 || seconds > 59 {
		return 0, false
	}
	return duration(hours, minutes, seconds, millis), true
}

// duration returns the duration of a stamp, at most maxStamp.
func duration(hours, minutes, seconds, millis int64) time.Duration {
	if hours >= int64(maxStamp/time.Hour) {
		return maxStamp
	}
	return time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute +
		time.Duration(seconds)*time.Second + time.Duration(millis)*time.Millisecond
}

// isSpace reports whether c is ASCII whitespace of HTML.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }
