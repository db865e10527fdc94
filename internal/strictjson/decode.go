package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxProblems is the largest number of problems that a Report keeps.
const MaxProblems = 1000

// Report is the reading of one document. It collects the problems of the document, in its order, or ends at the first one.
type Report struct {
	Problems []Problem

	first   bool   // ends at the first problem
	copied  []byte // the document behind from, for values that keep their bytes
	from    int64
	shallow int // the brackets in values that have too few to be nested too deep
	options jsonv2.Options
}

// Rules are the rules for types that need more than their fields.
type Rules struct {
	own   func(*Report) *jsonv2.Unmarshalers
	quick sync.Pool // of Reports that end at the first problem: to make their options takes longer than to read a document
}

// NewRules returns the rules that own makes for a Report. The rules add problems to the Report and go on; if it [Report.EndsAtFirst], they
// may return any error instead.
func NewRules(own func(*Report) *jsonv2.Unmarshalers) *Rules {
	return &Rules{own: own, quick: sync.Pool{New: func() any {
		r := &Report{first: true}
		r.options = jsonv2.JoinOptions(lax, jsonv2.WithUnmarshalers(own(r)))
		return r
	}}}
}

// Unmarshal decodes a document into the value that dst points to. Nearly all documents have no problem, and are read once. One that has is
// read again into another value, to find all its problems and not just the first. The problem of the whole document is that of [Check].
func Unmarshal(data []byte, dst any, rules *Rules) ([]Problem, *Problem) {
	if utf8.Valid(data) && rules.read(data, dst) {
		return nil, nil
	}
	if problem := Check(data, MaxDepth); problem != nil {
		return nil, problem
	}
	var r Report
	reflect.ValueOf(dst).Elem().SetZero()
	err := jsonv2.Unmarshal(data, dst, lax, jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(rules.own(&r), jsonv2.UnmarshalFromFunc(r.visit))))
	if err != nil { // a type that the report does not know how to pass
		r.Problems = append(r.Problems, Problem{Text: err.Error()})
	}
	return r.Problems, nil
}

// read decodes a document without a problem, and reports whether it is one.
func (rules *Rules) read(data []byte, dst any) bool {
	r := rules.quick.Get().(*Report) //nolint:forcetypeassert // the pool has nothing else
	err := jsonv2.Unmarshal(data, dst, r.options)
	good := err == nil && (brackets(data)-r.shallow <= MaxDepth || !isDeeper(data, MaxDepth))
	r.copied, r.shallow = nil, 0
	rules.quick.Put(r)
	return good
}

// EndsAtFirst reports whether the reading ends at the first problem.
func (r *Report) EndsAtFirst() bool { return r.first }

// Keep reads the next value and returns its bytes, which stay as they are. All values of a document share one copy.
func (r *Report) Keep(dec *jsontext.Decoder) ([]byte, error) {
	if r.copied == nil {
		r.copied, r.from = bytes.Clone(dec.UnreadBuffer()), dec.InputOffset()
	}
	value, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if n := brackets(value); n <= MaxDepth-dec.StackDepth() {
		r.shallow += n
	}
	end := int(dec.InputOffset() - r.from)
	return r.copied[end-len(value) : end : end], nil
}

// lax takes an escape of half a character as encoding/json does: JavaScript writes it for a text that was cut.
var lax = jsontext.AllowInvalidUTF8(true)

// Add adds a problem of the value that is next in the decoder. Problems after the first MaxProblems are dropped.
func (r *Report) Add(dec *jsontext.Decoder, text string) {
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, Problem{Path: next(dec), Text: text})
	}
}

// next returns the path of the next value.
func next(dec *jsontext.Decoder) string {
	at := dec.StackPointer() // of the last value, or of the name of the next
	if kind, n := dec.StackIndex(dec.StackDepth()); kind == '[' {
		if n > 0 {
			at = at.Parent()
		}
		return Pointer(path(at), strconv.FormatInt(n, 10))
	}
	return path(at)
}

// visit passes a value that does not fit into v, and reports it. Other values are left to the decoder.
func (r *Report) visit(dec *jsontext.Decoder, v any) error {
	t, kind := reflect.TypeOf(v).Elem(), dec.PeekKind()
	_, isObject := v.(jsonv2.UnmarshalerFrom)
	want, begin := wanted(t)
	switch {
	case kind == 'n', t.Kind() == reflect.Pointer, t.Kind() == reflect.Interface, t == rawMessage:
		return errors.ErrUnsupported
	case readsItself(v):
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map, isObject, begin == '[':
		if kind == begin {
			return errors.ErrUnsupported
		}
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if err := jsonv2.Unmarshal(raw, v, lax); err == nil {
		return nil
	}
	text := "must be " + want
	switch got := Kind(raw); {
	case !strings.HasPrefix(want, got) && !(begin == '0' && kind == '0'):
		text += ", got " + got
	case begin == '0':
		text += ", got a number that does not fit"
	}
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, Problem{Path: path(dec.StackPointer()), Text: text})
	}
	return nil
}

var (
	rawMessage = reflect.TypeFor[json.RawMessage]()
	timeType   = reflect.TypeFor[time.Time]()
)

// readsItself reports whether a value has a method that reads JSON or text.
func readsItself(v any) bool {
	switch v.(type) {
	case jsonv2.UnmarshalerFrom:
		return false
	case json.Unmarshaler, encoding.TextUnmarshaler:
		return true
	}
	return false
}

// wanted returns what JSON a type takes, in words, and the kind of its token.
func wanted(t reflect.Type) (want string, begin jsontext.Kind) {
	switch t.Kind() {
	case reflect.String:
		return "a string", '"'
	case reflect.Bool:
		return "a boolean", 't'
	case reflect.Float32, reflect.Float64:
		return "a number", '0'
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number", '0'
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64", '"'
		}
		return "an array", '['
	case reflect.Struct:
		if t == timeType {
			return "a string with an RFC 3339 time such as 2026-02-03T12:00:00Z", '"'
		}
	}
	return "an object", '{'
}

// AtMost returns the rule that a list has at most so many elements, each of which is read by a function: the others are passed and not
// read.
func AtMost[T any](r *Report, most int, read func(*jsontext.Decoder, *T) error) *jsonv2.Unmarshalers {
	return jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, list *[]T) error {
		if dec.PeekKind() != '[' {
			return errors.ErrUnsupported
		}
		at := next(dec)
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		// An element is seldom shorter than its value.
		*list = make([]T, 0, min(most, 1+len(dec.UnreadBuffer())/int(reflect.TypeFor[T]().Size()+1)))
		n := 0
		for ; dec.PeekKind() != ']'; n++ {
			if n >= most {
				if err := dec.SkipValue(); err != nil {
					return err
				}
				continue
			}
			*list = append(*list, *new(T))
			if err := read(dec, &(*list)[n]); err != nil {
				return err
			}
		}
		if _, err := dec.ReadToken(); err != nil || n <= most {
			return err
		}
		text := fmt.Sprintf("has %d items, at most %d", n, most)
		if r.first {
			return errors.New(text)
		}
		for len(r.Problems) > 0 && strings.HasPrefix(r.Problems[len(r.Problems)-1].Path, at+"/") {
			r.Problems = r.Problems[:len(r.Problems)-1]
		}
		r.Problems = append(r.Problems, Problem{Path: at, Text: text})
		return nil
	})
}
