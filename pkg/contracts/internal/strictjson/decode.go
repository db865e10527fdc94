package strictjson

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxProblems is how many problems a Decoder keeps.
const MaxProblems = 1000

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	rawMessage      = reflect.TypeFor[json.RawMessage]()
	timeType        = reflect.TypeFor[time.Time]()
)

// Hook decodes a value of a type that the decoder does not decode itself.
type Hook func(d *Decoder, raw []byte, dst reflect.Value)

// Decoder fills Go values from JSON that Check accepted and collects the problems.
//
// It knows two struct tags beside json: `wire:"present"` asks for the member even when its zero value would
// do, and `wire:"max=100"` bounds an array before its elements are looked at.
type Decoder struct {
	// Hooks are asked first, by the type of the destination.
	Hooks map[reflect.Type]Hook
	// Problems are the problems, in document order.
	Problems []Problem

	max  int       // how many elements the value that is decoded may have, 0 for any number
	path []segment // of the value that is decoded; only a problem makes a JSON Pointer of it
}

// segment is the name of a member, or the index of an element.
type segment struct {
	name  string
	index int
}

// Report adds a problem of the value that is decoded, or of one under it; those after the first MaxProblems are dropped.
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

// Member decodes the value of a member.
func (d *Decoder) Member(name string, raw []byte, dst reflect.Value) {
	d.path = append(d.path, segment{name: name, index: -1})
	d.Value(raw, dst)
	d.path = d.path[:len(d.path)-1]
}

// Value decodes raw into dst. null leaves dst as it is, like an absent member.
func (d *Decoder) Value(raw []byte, dst reflect.Value) {
	most := d.max
	d.max = 0
	if hook := d.Hooks[dst.Type()]; hook != nil {
		hook(d, raw, dst)
		return
	}
	if dst.Type() == rawMessage {
		dst.SetBytes(raw)
		return
	}
	if string(raw) == "null" {
		return
	}
	if dst.Kind() == reflect.Pointer {
		target := reflect.New(dst.Type().Elem())
		d.Value(raw, target.Elem())
		dst.Set(target)
		return
	}
	if pointer := reflect.PointerTo(dst.Type()); pointer.Implements(jsonUnmarshaler) || pointer.Implements(textUnmarshaler) {
		d.scalar(raw, dst)
		return
	}
	switch {
	case dst.Kind() == reflect.Struct:
		d.object(raw, dst)
	case dst.Kind() == reflect.Map:
		d.mapping(raw, dst)
	case dst.Kind() == reflect.Slice && dst.Type().Elem().Kind() != reflect.Uint8:
		d.array(raw, dst, most)
	default:
		d.scalar(raw, dst)
	}
}

func (d *Decoder) object(raw []byte, dst reflect.Value) {
	if raw[0] != '{' {
		d.Report("", "must be an object, got "+Kind(raw))
		return
	}
	var room [4]Member
	members := appendMembers(room[:0], raw)
	for _, field := range fieldsOf(dst.Type()) {
		value := find(members, field.name)
		found := value != nil
		if !found && !field.present {
			continue
		}
		switch {
		case !found:
			d.Report("/"+field.name, "is required")
		case field.present && string(value) == "null":
			d.Report("/"+field.name, "must not be null")
		default:
			d.max = field.max
			d.Member(field.name, value, dst.Field(field.index))
		}
	}
}

func find(members []Member, name string) []byte {
	for i := range members {
		if members[i].Is(name) {
			return members[i].Value
		}
	}
	return nil
}

func (d *Decoder) mapping(raw []byte, dst reflect.Value) {
	if raw[0] != '{' {
		d.Report("", "must be an object, got "+Kind(raw))
		return
	}
	result := reflect.MakeMap(dst.Type())
	for _, member := range Members(raw) {
		value, name := reflect.New(dst.Type().Elem()).Elem(), member.Name()
		d.Member(name, member.Value, value)
		result.SetMapIndex(reflect.ValueOf(name).Convert(dst.Type().Key()), value)
	}
	dst.Set(result)
}

func (d *Decoder) array(raw []byte, dst reflect.Value, most int) {
	if raw[0] != '[' {
		d.Report("", "must be an array, got "+Kind(raw))
		return
	}
	elements := Elements(raw)
	if most > 0 && len(elements) > most {
		d.Report("", fmt.Sprintf("has %d items, at most %d", len(elements), most))
		return
	}
	result := reflect.MakeSlice(dst.Type(), len(elements), len(elements))
	at := len(d.path)
	d.path = append(d.path, segment{})
	for i, element := range elements {
		d.path[at].index = i
		d.Value(element, result.Index(i))
	}
	d.path = d.path[:at]
	dst.Set(result)
}

func (d *Decoder) scalar(raw []byte, dst reflect.Value) {
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
	index   int
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

func fieldsOf(t reflect.Type) []field {
	if cached, ok := fieldCache.Load(t); ok {
		if fields, ok := cached.([]field); ok {
			return fields
		}
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		name = cmp.Or(name, f.Name)
		entry := field{name: name, index: i}
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
