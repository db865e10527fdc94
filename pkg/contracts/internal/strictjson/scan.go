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
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 64

// maxSegment is how many bytes of a sender's name appear in a path.
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

// Name is the decoded name.
func (m Member) Name() string {
	name, _ := Text(m.RawName)
	return name
}

// Text returns the text of a string, and false for another value. One that is expected is not copied. Without escapes, as nearly all
// are, it is between the quotes.
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

// Is reports whether the member has a name. It copies none without escapes, each of which is longer than its character.
func (m Member) Is(name string) bool {
	if raw := m.RawName[1 : len(m.RawName)-1]; len(raw) <= len(name) {
		return string(raw) == name && strings.IndexByte(name, '\\') < 0
	}
	return !IsPlain(m.RawName) && m.Name() == name
}

// IsPlain reports whether a value is a string without escapes, whose text is between the quotes.
func IsPlain(value []byte) bool {
	return len(value) > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0
}

// Check returns the first problem that makes data unusable as one JSON document: bytes that are not UTF-8, a syntax
// error, trailing data, deeper nesting than MaxDepth, or a name that occurs twice in one object. It returns nil when
// there is none.
func Check(data []byte) *Problem {
	if !utf8.Valid(data) {
		return &Problem{Text: "is not UTF-8"}
	}
	decoder := newReader(data)
	defer readers.Put(decoder)
	for {
		_, err := decoder.ReadToken()
		switch {
		case err != nil:
			return problemOf(data, err)
		case decoder.StackDepth() > MaxDepth:
			return &Problem{Path: path(decoder.StackPointer()), Text: fmt.Sprintf("is nested deeper than %d levels", MaxDepth)}
		case decoder.StackDepth() > 0:
		case len(bytes.TrimLeft(data[decoder.InputOffset():], " \t\r\n")) > 0:
			return problemOf(data, errTrailing)
		default:
			return nil
		}
	}
}

var errTrailing = errors.New("there is something behind the value")

// problemOf says what err is about. encoding/json says what is wrong with syntax, if it finds it too.
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

// reader is a decoder and its source, which are used again together.
type reader struct {
	jsontext.Decoder

	data bytes.Buffer
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// newReader returns a decoder that takes an escape of half a character as encoding/json does. The caller puts it back.
func newReader(data []byte) *reader {
	r, _ := readers.Get().(*reader)
	r.data = *bytes.NewBuffer(data)
	r.Reset(&r.data, jsontext.AllowInvalidUTF8(true))
	return r
}

// path is a pointer whose long tokens are cut.
func path(pointer jsontext.Pointer) (path string) {
	for token := range pointer.Tokens() {
		path = Pointer(path, token)
	}
	return path
}

// Members splits an object that Check accepted. It returns nil for anything that is not an object.
func Members(object []byte) []Member { return appendMembers(nil, object) }

func appendMembers(members []Member, object []byte) []Member {
	var name []byte
	split(object, '{', func(part []byte) {
		if name == nil {
			name = part
			return
		}
		if members == nil {
			members = make([]Member, 0, min(16, 1+len(object)/16)) // enough for most, of which few have smaller members
		}
		members, name = append(members, Member{RawName: name, Value: part}), nil
	})
	return members
}

// Elements splits an array that Check accepted. It returns nil for anything that is not an array.
func Elements(array []byte) (elements [][]byte) {
	split(array, '[', func(part []byte) {
		if elements == nil {
			elements = make([][]byte, 0, min(16, 1+len(array)/16))
		}
		elements = append(elements, part)
	})
	return elements
}

// split yields the names and values of an object, or the elements of an array, and nothing when the data begins with another byte
// than begin. It looks at no more than quotes and brackets: it is called for each part of a document, and jsontext would check each
// again.
func split(data []byte, begin byte, yield func(part []byte)) {
	at := skip(data, 0)
	if at == len(data) || data[at] != begin {
		return
	}
	for at = skip(data, at+1); data[at] != '}' && data[at] != ']'; at = skip(data, at) {
		from := at
		at = end(data, from)
		yield(data[from:at:at])
	}
}

// The kinds of bytes outside of strings.
const (
	between = 1 << iota // it stands between names and values
	closing             // it ends an object or array
)

var kinds = [256]byte{ //nolint:gochecknoglobals // a table
	' ': between, '\t': between, '\r': between, '\n': between, ',': between, ':': between, '}': closing, ']': closing,
}

// skip returns the first place from at on that does not stand between names and values.
func skip(data []byte, at int) int {
	for at < len(data) && kinds[data[at]] == between {
		at++
	}
	return at
}

// end returns where the name or value ends that begins at a place.
func end(data []byte, at int) int {
	for depth := 0; ; at++ {
		switch data[at] {
		case '"':
			at = endText(data, at)
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			for at+1 < len(data) && kinds[data[at+1]] == 0 {
				at++
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
}

// endText returns where the closing quote of a string is that begins at a place: the next one with an even number of backslashes before it.
func endText(data []byte, at int) int {
	for {
		at += 1 + bytes.IndexByte(data[at+1:], '"')
		escapes := 0
		for data[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
	}
}

// Pick sets values to those of the members of an object that have names, nil for one that it does not have. It reads no further than
// to the last of them.
func Pick(values [][]byte, object []byte, names ...string) error {
	decoder := newReader(object)
	defer readers.Put(decoder)
	token, err := decoder.ReadToken()
	if err == nil && token.Kind() != '{' {
		return errors.New("must be an object, got " + Kind(object))
	}
	for left := len(names); left > 0 && err == nil && decoder.PeekKind() != '}'; {
		var name, value jsontext.Value
		if name, err = decoder.ReadValue(); err != nil {
			break
		}
		at := slices.IndexFunc(names, Member{RawName: name}.Is)
		if value, err = decoder.ReadValue(); err == nil && at >= 0 {
			to := decoder.InputOffset()
			values[at] = object[to-int64(len(value)) : to]
			left--
		}
	}
	if err != nil {
		return fmt.Errorf("is not JSON: %w", err)
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
	if len(segment) > maxSegment {
		segment = strings.ToValidUTF8(segment[:maxSegment], "") + "…"
	}
	if strings.ContainsAny(segment, "~/") {
		segment = strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
	}
	return path + "/" + segment
}
