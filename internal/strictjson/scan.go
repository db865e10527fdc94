// Package strictjson reads JSON strictly: names are matched exactly, a name that occurs twice is refused, every wrong
// type is reported with its path, and the bytes of a value stay available.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/expediter-io/expediter/internal/redact"
)

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
	if len(value) < 2 || value[0] != '"' {
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
	err := json.Unmarshal(value, &text)
	return text, err == nil
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

// MaxDepth is the deepest nesting of objects and arrays in a document. The library would take 10,000 levels.
const MaxDepth = 64

// Check returns the first problem that makes data unusable as one JSON document: bytes that are not
// UTF-8, more levels of objects and arrays than most, a syntax error, trailing data, or a name that
// occurs twice in one object. It returns nil when there is none.
func Check(data []byte, most int) *Problem {
	if !utf8.Valid(data) {
		return &Problem{Text: "is not UTF-8"}
	}
	if isDeeper(data, most) {
		return &Problem{Text: "is nested deeper than " + strconv.Itoa(most) + " levels"}
	}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data), lax)
	_, err := decoder.ReadValue()
	if err == nil {
		if _, err = decoder.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("there is something behind the value")
	}
	return problemOf(data, err)
}

// isDeeper reports whether objects and arrays are nested deeper than most levels. Few documents have so many brackets at all, which are
// counted in a twentieth of the time of the loop.
func isDeeper(data []byte, most int) bool {
	if brackets(data) <= most {
		return false
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += text(data[i:]) - 1
		case '{', '[':
			depth++
			if depth > most {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// brackets counts the opening brackets of a document, also those in texts.
func brackets(data []byte) int {
	return bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
}

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
	var room [24]Member
	list := room[:0]
	if !Walk(object, func(m Member) bool { list = append(list, m); return true }) {
		return nil
	}
	return slices.Clone(list)
}

// Pick sets values to the values of the named members of an object, nil for a missing member. It
// reads no further than the last of them, and does not check the values.
func Pick(values [][]byte, object []byte, names ...string) error {
	left := len(names)
	ok := Walk(object, func(m Member) bool {
		if at := slices.IndexFunc(names, m.Is); at >= 0 && values[at] == nil {
			values[at] = m.Value
			left--
		}
		return left > 0
	})
	if !ok && left > 0 {
		return errors.New("must be an object, got " + Kind(object))
	}
	return nil
}

// Walk calls each for the members of an object until it returns false, and reports whether it read the object to its end. The object was
// checked, so quotation marks and brackets say where a part ends. Of another text it calls each for what looks like members.
func Walk(object []byte, each func(Member) bool) bool {
	rest := skip(object)
	if len(rest) == 0 || rest[0] != '{' {
		return false
	}
	for rest = skip(rest[1:]); len(rest) > 0; rest = skip(rest[1:]) { // behind a comma
		if rest[0] == '}' {
			return true
		}
		name := rest[:size(rest)]
		rest = skip(rest[len(name):])
		if len(name) < 2 || name[0] != '"' || len(rest) == 0 || rest[0] != ':' {
			return false
		}
		rest = skip(rest[1:])
		value := rest[:size(rest)]
		rest = skip(rest[len(value):])
		if len(value) == 0 || !each(Member{RawName: slices.Clip(name), Value: slices.Clip(value)}) || len(rest) == 0 {
			return false
		}
		if rest[0] == '}' {
			return true
		}
	}
	return false
}

// skip returns data behind white space.
func skip(data []byte) []byte {
	for len(data) > 0 && data[0] <= ' ' {
		data = data[1:]
	}
	return data
}

// size returns the length of the value at the beginning of data.
func size(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += text(data[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth <= 0 {
				return i + 1 + depth
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(data)
}

// text returns the length of the string at the beginning of data.
func text(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(data)
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
