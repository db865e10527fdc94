package strictjson

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxProblems is the largest number of problems that a Decoder keeps.
const MaxProblems = 1000

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	rawMessage      = reflect.TypeFor[json.RawMessage]()
	timeType        = reflect.TypeFor[time.Time]()
)

// Hook decodes a value of a type that the decoder does not decode itself.
type Hook func(d *Decoder, dst reflect.Value)

// Decoder fills Go values from JSON and collects the problems.
//
// It knows two struct tags beside json: `wire:"present"` requires the member even where a zero value is valid, and `wire:"max=100"` bounds
// an array before its elements are read.
type Decoder struct {
	scanner

	// Hooks come before the decoder's own rules, by the type of the destination.
	Hooks map[reflect.Type]Hook
	// Problems are the problems, in document order.
	Problems []Problem

	max  int       // the most elements of the value that is decoded, 0 for any number
	path []segment // the place of the value that is decoded; a JSON Pointer is made for a problem only
}

// segment is the name of a member, or the index of an element.
type segment struct {
	name  string
	index int
}

// Report adds a problem of the value that is decoded, or of a value under it. Problems after the first MaxProblems are dropped.
func (d *Decoder) Report(under, text string) {
	if len(d.Problems) >= MaxProblems {
		return
	}
	var path string
	for _, s := range d.path {
		if s.index >= 0 {
			path = Pointer(path, strconv.Itoa(s.index))
		} else {
			path = Pointer(path, s.name)
		}
	}
	d.Problems = append(d.Problems, Problem{Path: path + under, Text: text})
}

// Decode decodes a document into dst. The problem is that of [Check]; dst may have a part of the document then.
func (d *Decoder) Decode(data []byte, dst reflect.Value) *Problem {
	d.scanner = scanner{data: data}
	d.value(dst)
	if d.over() {
		return nil
	}
	return explain(data)
}

// Member decodes the value of a member that a hook has read.
func (d *Decoder) Member(name string, raw []byte, dst reflect.Value) {
	at := d.scanner
	d.scanner = scanner{data: raw}
	d.member(name, dst)
	d.scanner = at
}

// member decodes the next value, the value of a member.
func (d *Decoder) member(name string, dst reflect.Value) {
	d.path = append(d.path, segment{name: name, index: -1})
	d.value(dst)
	d.path = d.path[:len(d.path)-1]
}

// value decodes the next value into dst. null leaves dst as it is, like an absent member.
func (d *Decoder) value(dst reflect.Value) {
	most := d.max
	d.max = 0
	if hook := d.Hooks[dst.Type()]; hook != nil {
		hook(d, dst)
		return
	}
	if dst.Type() == rawMessage {
		dst.SetBytes(d.raw())
		return
	}
	if d.isNull() {
		return
	}
	if dst.Kind() == reflect.Pointer {
		target := reflect.New(dst.Type().Elem())
		d.value(target.Elem())
		dst.Set(target)
		return
	}
	if readsItself(dst.Type()) {
		d.scalar(d.raw(), dst)
		return
	}
	switch {
	case dst.Kind() == reflect.Struct:
		d.object(dst)
	case dst.Kind() == reflect.Map:
		d.mapping(dst)
	case dst.Kind() == reflect.Slice && dst.Type().Elem().Kind() != reflect.Uint8:
		d.array(dst, most)
	default:
		d.scalar(d.raw(), dst)
	}
}

// readsItself reports whether a type has a method that reads JSON or text. The types of the language have none.
func readsItself(t reflect.Type) bool {
	if t.PkgPath() == "" && t.Kind() != reflect.Struct {
		return false
	}
	pointer := reflect.PointerTo(t)
	return pointer.Implements(jsonUnmarshaler) || pointer.Implements(textUnmarshaler)
}

// isNull reports whether the next value is null, and passes it.
func (d *Decoder) isNull() bool {
	if d.next() != 'n' {
		return false
	}
	d.pass()
	return true
}

// opens reports whether the next value begins with a byte, that of an object or array. It passes another value, and reports the problem.
func (d *Decoder) opens(begin byte, want string) bool {
	if d.next() == begin {
		return true
	}
	d.Report("", "must be "+want+", got "+Kind(d.data[d.at:]))
	d.pass()
	return false
}

func (d *Decoder) object(dst reflect.Value) {
	if !d.opens('{', "an object") {
		return
	}
	fields, found := fieldsOf(dst.Type()), uint64(0)
	d.members(func(name []byte) {
		i := slices.IndexFunc(fields, func(f field) bool { return Member{RawName: name}.Is(f.name) })
		if i < 0 {
			d.pass()
			return
		}
		field := fields[i]
		found |= 1 << i
		if field.present && d.isNull() {
			d.Report("/"+field.name, "must not be null")
			return
		}
		d.max = field.max
		d.member(field.name, dst.FieldByIndex(field.index))
	})
	for i, field := range fields {
		if field.present && found>>i&1 == 0 {
			d.Report("/"+field.name, "is required")
		}
	}
}

func (d *Decoder) mapping(dst reflect.Value) {
	if !d.opens('{', "an object") {
		return
	}
	result := reflect.MakeMap(dst.Type())
	d.members(func(raw []byte) {
		value, name := reflect.New(dst.Type().Elem()).Elem(), string(Member{RawName: raw}.Name())
		d.member(name, value)
		result.SetMapIndex(reflect.ValueOf(name).Convert(dst.Type().Key()), value)
	})
	dst.Set(result)
}

func (d *Decoder) array(dst reflect.Value, most int) {
	if !d.opens('[', "an array") {
		return
	}
	problems, at, n := len(d.Problems), len(d.path), 0
	// An element is seldom shorter than its value.
	room := min(cmp.Or(most, 16), 1+(len(d.data)-d.at)/int(dst.Type().Elem().Size()+1))
	dst.Set(reflect.MakeSlice(dst.Type(), 0, room))
	d.path = append(d.path, segment{})
	d.list(']', func() {
		d.path[at].index = n
		n++
		if most > 0 && n > most {
			d.pass()
			return
		}
		dst.Grow(1)
		dst.SetLen(n)
		d.value(dst.Index(n - 1))
	})
	d.path = d.path[:at]
	if most > 0 && n > most {
		d.Problems = d.Problems[:problems]
		d.Report("", fmt.Sprintf("has %d items, at most %d", n, most))
	}
}

// Object passes an object, calls each for its members, and returns the object. For another value it reports a problem and returns false.
func (d *Decoder) Object(each func(Member)) (raw []byte, ok bool) {
	if !d.opens('{', "an object") {
		return nil, false
	}
	from := d.at
	d.members(func(name []byte) { each(Member{RawName: name, Value: d.raw()}) })
	return d.data[from:d.at:d.at], !d.failed
}

func (d *Decoder) scalar(raw []byte, dst reflect.Value) {
	if d.failed {
		return
	}
	if text, ok := Text(raw); ok && dst.Kind() == reflect.String {
		dst.SetString(text)
		return
	}
	if dst.Kind() == reflect.Float64 && strings.IndexByte("-0123456789", raw[0]) >= 0 {
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			dst.SetFloat(f)
			return
		}
	}
	err := json.Unmarshal(raw, dst.Addr().Interface())
	if err == nil {
		return
	}
	want := wanted(dst.Type())
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Value, "number ") {
		d.Report("", "must be "+want+", got a number that does not fit")
		return
	}
	if kind := Kind(raw); !strings.HasPrefix(want, kind) {
		d.Report("", "must be "+want+", got "+kind)
		return
	}
	d.Report("", "must be "+want)
}

func wanted(t reflect.Type) string {
	if t == timeType {
		return "a string with an RFC 3339 time such as 2026-02-03T12:00:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return "a string in base64"
	}
	return "a " + t.Name()
}

type field struct {
	name    string
	index   []int
	max     int
	present bool
}

// number reads a limit from a struct tag, which is part of the program.
func number(tag string) int {
	n, err := strconv.Atoi(tag)
	if err != nil {
		panic("strictjson: struct tag max=" + tag + " is not a number")
	}
	return n
}

var fieldCache sync.Map // reflect.Type → []field

// fieldsOf returns the fields of a struct and of the structs that it embeds, at most 64.
func fieldsOf(t reflect.Type) []field {
	if cached, ok := fieldCache.Load(t); ok {
		if fields, ok := cached.([]field); ok {
			return fields
		}
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" {
			continue
		}
		name = cmp.Or(name, f.Name)
		entry := field{name: name, index: f.Index}
		for option := range strings.SplitSeq(f.Tag.Get("wire"), ",") {
			if limit, ok := strings.CutPrefix(option, "max="); ok {
				entry.max = number(limit)
			}
			entry.present = entry.present || option == "present"
		}
		fields = append(fields, entry)
	}
	fieldCache.Store(t, fields)
	return fields
}
