package servicetest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Types compares the schemas of the descriptions, by name, with the types that handlers read and write. It reports every field that only
// one of them has, or in which they differ. nil stands for a schema without a type: only answers are checked against it. The schemas of
// package contracts are compared with the types there, and those of all services with [service.Problem].
func (d *Description) Types(t *testing.T, types map[string]any) {
	t.Helper()
	types = maps.Clone(types)
	schemas := at(d.doc, "components", "schemas")
	for name, schema := range schemas {
		value, known := types[name]
		delete(types, name)
		if at(node{name: schema}, name)["$comment"] != nil {
			continue
		}
		if !known {
			t.Errorf("schema %s has no type in this test", name)
		} else if value != nil {
			d.conform(t, name, schema, reflect.TypeOf(value))
		}
	}
	for name := range types {
		t.Errorf("there is no schema %s", name)
	}
}

// conform compares one schema with a type.
func (d *Description) conform(t *testing.T, path string, schema any, typ reflect.Type) {
	t.Helper()
	s := d.resolve(schema)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[json.RawMessage]() || typ.Kind() == reflect.Interface || s["$comment"] != nil {
		return
	}
	want := map[reflect.Kind]string{
		reflect.Bool: "boolean", reflect.Float64: "number", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Struct: "object",
	}[typ.Kind()]
	switch {
	case typ == reflect.TypeFor[time.Time]():
		want = "string"
		if s["format"] != "date-time" {
			t.Errorf("%s: want the format date-time", path)
		}
	case typ.Kind() == reflect.Slice:
		d.conform(t, path+"/*", s["items"], typ.Elem())
	case typ.Kind() == reflect.Map:
		d.conform(t, path+"/*", s["additionalProperties"], typ.Elem())
	case typ.Kind() == reflect.Struct:
		d.fields(t, path, s, typ)
	case want == "":
		want = "integer"
	}
	if s["type"] != want {
		t.Errorf("%s: is described as %v, the type %s is %s", path, s["type"], typ, want)
	}
}

func (d *Description) fields(t *testing.T, path string, s node, typ reflect.Type) {
	t.Helper()
	properties, always := map[string]reflect.Type{}, []string{}
	collect(typ, properties, &always)
	same(t, path+": fields", slices.Sorted(maps.Keys(at(s, "properties"))), slices.Sorted(maps.Keys(properties)))
	for name, of := range properties {
		if described := at(s, "properties")[name]; described != nil {
			d.conform(t, path+"/"+name, described, of)
		}
	}
	if s["x-request"] == true { // a decoder reads a missing member as zero
		return
	}
	var required []string
	names, _ := s["required"].([]any)
	for _, name := range names {
		required = append(required, word(name))
	}
	slices.Sort(required)
	slices.Sort(always)
	same(t, path+": fields that are always there", required, always)
}

// collect adds the fields of a struct by their names in JSON.
func collect(typ reflect.Type, properties map[string]reflect.Type, always *[]string) {
	for field := range typ.Fields() {
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case field.Anonymous && tag == "":
			collect(field.Type, properties, always)
		case field.IsExported() && name != "-":
			properties[name] = field.Type
			if !strings.HasPrefix(options, "omit") {
				*always = append(*always, name)
			}
		}
	}
}
