// Package strictjson reads JSON strictly: names are matched exactly, a name that occurs twice is refused, every wrong
// type is reported with its path, and the bytes of a value stay available.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Name is the decoded name.
	Name string
	// RawName is the name as it was written, with its quotes.
	RawName []byte
	// Value is the value as it was written, without the white space around it.
	Value []byte
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
	decoder := newDecoder(data)
	defer decoders.Put(decoder)
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

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// newDecoder returns a decoder that takes an escape of half a character as encoding/json does. The caller puts it back.
func newDecoder(data []byte) *jsontext.Decoder {
	decoder, _ := decoders.Get().(*jsontext.Decoder)
	decoder.Reset(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true))
	return decoder
}

// path is a pointer whose long tokens are cut.
func path(pointer jsontext.Pointer) (path string) {
	for token := range pointer.Tokens() {
		path = Pointer(path, token)
	}
	return path
}

// Members splits an object that Check accepted. It returns nil for anything that is not an object.
func Members(object []byte) []Member {
	values := split(object, '{')
	if values == nil {
		return nil
	}
	members := make([]Member, 0, len(values)/2)
	for pair := range slices.Chunk(values, 2) {
		members = append(members, Member{Name: name(pair[0]), RawName: pair[0], Value: pair[1]})
	}
	return members
}

// Elements splits an array that Check accepted. It returns nil for anything that is not an array.
func Elements(array []byte) [][]byte { return split(array, '[') }

// split returns the names and values of an object, or the elements of an array, and nil for what does not begin as it should.
func split(data []byte, begin jsontext.Kind) [][]byte {
	decoder := newDecoder(data)
	defer decoders.Put(decoder)
	if decoder.PeekKind() != begin {
		return nil
	}
	_, err := decoder.ReadToken()
	parts := make([][]byte, 0, 16)
	for kind := decoder.PeekKind(); err == nil && kind != '}' && kind != ']'; kind = decoder.PeekKind() {
		var raw jsontext.Value
		raw, err = decoder.ReadValue()
		end := decoder.InputOffset()
		parts = append(parts, data[end-int64(len(raw)):end])
	}
	if err != nil {
		panic("strictjson: a document that was not checked: " + err.Error())
	}
	return parts
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

func name(raw []byte) (text string) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		panic("strictjson: a document that was not checked: " + err.Error())
	}
	return text
}
