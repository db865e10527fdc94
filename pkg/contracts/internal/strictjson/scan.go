// Package strictjson reads JSON strictly: names are matched exactly, a name that occurs twice is refused, every wrong
// type is reported with its path, and the bytes of a value stay available.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/expediter-io/expediter/pkg/redact"
)

// MaxDepth is the deepest nesting of objects and arrays.
const MaxDepth = 64

// maxSegment is the largest number of bytes of a sender's name in a path.
const maxSegment = 64

// Problem is a problem at one JSON Pointer.
type Problem struct{ Path, Text string }

// Member is one name and value of an object.
type Member struct {
	// RawName is the name as it was written, with its quotes.
	RawName []byte
	// Value is the value as it was written, without the white space around it.
	Value []byte
}

// Name is the name without its escapes.
func (m Member) Name() []byte {
	if IsPlain(m.RawName) {
		return m.RawName[1 : len(m.RawName)-1]
	}
	name, _ := Text(m.RawName)
	return []byte(name)
}

// Text returns the text of a string, and false for another value. It does not allocate for an expected text. A string without escapes, as
// nearly all are, has its text between the quotes.
func Text(value []byte, expected ...string) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	if IsPlain(value) {
		for _, text := range expected {
			if string(value[1:len(value)-1]) == text {
				return text, true
			}
		}
		return string(value[1 : len(value)-1]), true
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		panic("strictjson: a document that was not checked: " + err.Error())
	}
	return text, true
}

// Is reports whether the member has the name. It copies only a name with escapes, which is longer than its text.
func (m Member) Is(name string) bool {
	if raw := m.RawName[1 : len(m.RawName)-1]; len(raw) <= len(name) {
		return string(raw) == name && strings.IndexByte(name, '\\') < 0
	}
	return !IsPlain(m.RawName) && string(m.Name()) == name
}

// IsPlain reports whether a value is a string without escapes, whose text is between the quotes.
func IsPlain(value []byte) bool {
	return len(value) > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0
}

// Check returns the first problem that makes data unusable as one JSON document: bytes that are not UTF-8, a syntax
// error, trailing data, deeper nesting than MaxDepth, or a name that occurs twice in one object. It returns nil when
// there is none.
func Check(data []byte) *Problem {
	s := scanner{data: data}
	s.pass()
	if s.over() {
		return nil
	}
	return explain(data)
}

// explain is Check for a document that a scanner refuses, in twice the time.
func explain(data []byte) *Problem {
	if !utf8.Valid(data) {
		return &Problem{Text: "is not UTF-8"}
	}
	// An escape of half a character is taken as encoding/json does.
	decoder := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true))
	for {
		_, err := decoder.ReadToken()
		switch {
		case err != nil:
			return problemOf(data, err)
		case decoder.StackDepth() > MaxDepth:
			return &Problem{Path: path(decoder.StackPointer()), Text: fmt.Sprintf("is nested deeper than %d levels", MaxDepth)}
		case decoder.StackDepth() == 0:
			return problemOf(data, errTrailing)
		}
	}
}

var errTrailing = errors.New("there is something behind the value")

// problemOf returns the problem of err. Its text for a syntax error is that of encoding/json, if encoding/json finds the error too.
func problemOf(data []byte, err error) *Problem {
	var raw json.RawMessage
	if syntax := json.Unmarshal(data, &raw); syntax != nil {
		return &Problem{Text: "is not JSON: " + syntax.Error()}
	}
	twice, ok := errors.AsType[*jsontext.SyntacticError](err)
	if ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return &Problem{Path: path(twice.JSONPointer), Text: "occurs twice"}
	}
	return &Problem{Text: "is not JSON: " + err.Error()}
}

// path returns a pointer with its long tokens cut.
func path(pointer jsontext.Pointer) (path string) {
	for token := range pointer.Tokens() {
		path = Pointer(path, token)
	}
	return path
}

// Members splits an object that Check accepted. It returns nil for anything that is not an object.
func Members(object []byte) []Member {
	s := scanner{data: object}
	if s.next() != '{' {
		return nil
	}
	return s.split()
}

// Pick sets values to the values of the named members of an object, nil for a missing member. It reads no further than the last of them.
func Pick(values [][]byte, object []byte, names ...string) error {
	s := scanner{data: object}
	if s.next() != '{' {
		return errors.New("must be an object, got " + Kind(object))
	}
	left := len(names)
	s.members(func(name []byte) {
		value := s.raw()
		if at := slices.IndexFunc(names, Member{RawName: name}.Is); at >= 0 && values[at] == nil && !s.failed {
			values[at] = value
			left--
		}
		if left == 0 {
			s.fail() // the rest is not read
		}
	})
	if s.failed && left > 0 {
		return errors.New(explain(object).Text)
	}
	return nil
}

// Kind names the type of a value with its article, as it reads in a sentence.
func Kind(value []byte) string {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Pointer appends one reference token to a JSON Pointer, escaped, and cut when it is long.
func Pointer(path, segment string) string {
	segment = redact.Shorten(segment, maxSegment)
	if strings.ContainsAny(segment, "~/") {
		segment = strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
	}
	return path + "/" + segment
}
