// Package strictjson reads JSON strictly: names are matched exactly, a name that occurs twice is refused, every wrong
// type is reported with its path, and the bytes of a value stay available.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
func (m Member) Name() (name string) {
	if bytes.IndexByte(m.RawName, '\\') < 0 {
		return string(m.RawName[1 : len(m.RawName)-1])
	}
	if err := json.Unmarshal(m.RawName, &name); err != nil {
		panic("strictjson: a document that was not checked: " + err.Error())
	}
	return name
}

// Is reports whether the member has a name. It copies none without escapes.
func (m Member) Is(name string) bool {
	if bytes.IndexByte(m.RawName, '\\') < 0 {
		return string(m.RawName[1:len(m.RawName)-1]) == name
	}
	return m.Name() == name
}

// Check returns the first problem that makes data unusable as one JSON document: bytes that are not UTF-8, a syntax
// error, trailing data, deeper nesting than MaxDepth, or a name that occurs twice in one object. It returns nil when
// there is none.
func Check(data []byte) *Problem {
	if !utf8.Valid(data) {
		return &Problem{Text: "is not UTF-8"}
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return &Problem{Text: "is not JSON: " + err.Error()}
	}
	decoder := newReader(data)
	defer readers.Put(decoder)
	for {
		_, err := decoder.ReadToken()
		twice, ok := errors.AsType[*jsontext.SyntacticError](err)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ok && errors.Is(err, jsontext.ErrDuplicateName):
			return &Problem{Path: path(twice.JSONPointer), Text: "occurs twice"}
		case err != nil:
			return &Problem{Text: "is not JSON: " + err.Error()}
		case decoder.StackDepth() > MaxDepth:
			return &Problem{Path: path(decoder.StackPointer()), Text: fmt.Sprintf("is nested deeper than %d levels", MaxDepth)}
		}
	}
}

// reader is a decoder and what it reads, which are used again together.
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
func Members(object []byte) (members []Member) {
	var name []byte
	split(object, '{', func(part []byte) {
		if name == nil {
			name = part
			return
		}
		if members == nil {
			members = make([]Member, 0, 8)
		}
		members, name = append(members, Member{RawName: name, Value: part}), nil
	})
	return members
}

// Elements splits an array that Check accepted. It returns nil for anything that is not an array.
func Elements(array []byte) (elements [][]byte) {
	split(array, '[', func(part []byte) { elements = append(elements, part) })
	return elements
}

// split yields the names and values of an object, or the elements of an array, and nothing for what does not begin as it should.
func split(data []byte, begin jsontext.Kind, yield func(part []byte)) {
	decoder := newReader(data)
	defer readers.Put(decoder)
	if decoder.PeekKind() != begin {
		return
	}
	_, err := decoder.ReadToken()
	for kind := decoder.PeekKind(); err == nil && kind != '}' && kind != ']'; kind = decoder.PeekKind() {
		var raw jsontext.Value
		if raw, err = decoder.ReadValue(); err == nil {
			end := decoder.InputOffset()
			yield(data[end-int64(len(raw)) : end])
		}
	}
	if err != nil {
		panic("strictjson: a document that was not checked: " + err.Error())
	}
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
