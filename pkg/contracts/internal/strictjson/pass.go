package strictjson

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// scanner passes the values of a document, and makes the checks of [Check] on the way. After an error the scanner is at the end of the
// document.
type scanner struct {
	data   []byte
	at     int
	depth  int
	failed bool
}

func (s *scanner) fail() { s.failed, s.at = true, len(s.data) }

// over reports whether the document has ended without an error.
func (s *scanner) over() bool {
	return s.next() == 0 && s.at == len(s.data) && !s.failed && utf8.Valid(s.data)
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

// next is peek behind white space.
func (s *scanner) next() byte {
	for {
		switch c := s.peek(); c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
}

// took reports whether the next byte behind white space is c, and passes it then.
func (s *scanner) took(c byte) bool {
	is := s.next() == c
	if is {
		s.at++
	}
	return is
}

// raw passes a value and returns its bytes.
func (s *scanner) raw() []byte {
	s.next()
	from := s.at
	s.pass()
	return s.data[from:s.at:s.at]
}

// pass passes a value.
func (s *scanner) pass() {
	switch s.next() {
	case '{':
		s.members(func([]byte) { s.pass() })
	case '[':
		s.list(']', func() { s.pass() })
	case '"':
		s.text()
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.number()
	}
}

// split passes an object and returns its members.
func (s *scanner) split() []Member {
	var room [24]Member
	list := room[:0]
	s.members(func(name []byte) { list = append(list, Member{RawName: name, Value: s.raw()}) })
	return slices.Clone(list)
}

// members passes an object. It calls value with each name, in quotes; value passes the value.
func (s *scanner) members(value func(name []byte)) {
	var room [16][]byte
	names := room[:0]
	s.list('}', func() {
		s.next()
		from := s.at
		s.text()
		name := s.data[from:s.at:s.at]
		if !s.took(':') {
			s.fail()
			return
		}
		value(name)
		names = append(names, Member{RawName: name}.Name())
	})
	if hasTwice(names) {
		s.fail()
	}
}

// hasTwice reports whether a name occurs twice. It may sort the names.
func hasTwice(names [][]byte) bool {
	distance := 16
	if len(names) > distance {
		slices.SortFunc(names, bytes.Compare)
		distance = 1
	}
	for i, name := range names {
		for _, before := range names[max(0, i-distance):i] {
			if bytes.Equal(before, name) {
				return true
			}
		}
	}
	return false
}

// list passes an object or array. It calls part once for each part; part passes that part.
func (s *scanner) list(end byte, part func()) {
	s.at++
	s.depth++
	if s.depth > MaxDepth {
		s.fail()
	}
	for more := s.next() != end; more; more = s.took(',') {
		part()
	}
	if !s.took(end) {
		s.fail()
	}
	s.depth--
}

// text passes a string.
func (s *scanner) text() {
	if s.peek() != '"' {
		s.fail()
		return
	}
	for s.at++; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return
		case c == '\\':
			s.escape()
		case c < ' ':
			s.fail()
		}
	}
	s.fail()
}

// escape passes an escape up to its last byte.
func (s *scanner) escape() {
	s.at++
	rest, allowed := 0, `"\/bfnrt`
	if s.peek() == 'u' {
		rest, allowed = 4, "u"
	}
	for ; ; rest-- {
		if c := s.peek(); strings.IndexByte(allowed, c) < 0 {
			s.fail()
			return
		}
		if rest == 0 {
			return
		}
		s.at++
		allowed = "0123456789abcdefABCDEF"
	}
}

// word passes true, false or null.
func (s *scanner) word(word string) {
	if !bytes.HasPrefix(s.data[s.at:], []byte(word)) {
		s.fail()
		return
	}
	s.at += len(word)
}

// number passes a number.
func (s *scanner) number() {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.at++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if sign := s.peek(); sign == '+' || sign == '-' {
			s.at++
		}
		s.digits()
	}
}

// digits passes one digit or more.
func (s *scanner) digits() {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	if s.at == from {
		s.fail()
	}
}
