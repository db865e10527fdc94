package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	text "text/template"
)

// push has the parts that a channel of the kind Push shows in addition to a subject and a text, or instead of them.
type push struct {
	body, icon, title, url executor
	data                   any // JSON, in which a text is an executor
}

// pushReader reads a file of JSON. The texts in it are templates, so that no value can become anything but a text.
type pushReader struct {
	*parser

	body    string
	decoder *json.Decoder
	source  source
}

// push reads a file that describes a push.
func (p *parser) push(s source, body string) *push {
	file := s.file
	r := &pushReader{parser: p, body: body, decoder: json.NewDecoder(strings.NewReader(body)), source: s}
	r.decoder.UseNumber()
	out := &push{}
	into := map[string]*executor{"body": &out.body, "icon": &out.icon, "title": &out.title, "url": &out.url}
	fields, err := r.value("")
	object, ok := fields.(map[string]any)
	if err == nil {
		if _, more := r.decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more behind the JSON")
		} else if !ok {
			err = errors.New("want a JSON object")
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		p.mistakef(file, r.line(), "%v", err)
		out.title, out.body = text.New(file), text.New(file) // so that they are not reported as missing, too
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, isText := object[name].(executor)
		switch {
		case name == "data":
			out.data = object[name]
		case into[name] == nil:
			p.mistakef(file, 0, "there is no field %s: want title, body, url, icon or data", name)
		case !isText:
			p.mistakef(file, 0, "%s is no text", name)
		default:
			*into[name] = value
		}
	}
	return out
}

// line returns the number of the line that was read last.
func (r *pushReader) line() int {
	return 1 + strings.Count(r.body[:min(int(r.decoder.InputOffset()), len(r.body))], "\n")
}

// value reads one value. field is the outermost field that contains it.
func (r *pushReader) value(field string) (any, error) {
	token, err := r.decoder.Token()
	switch token := token.(type) {
	case nil:
		return nil, err
	case string:
		return r.text(field, token), nil
	case json.Delim:
		if token == '[' {
			return r.list(field)
		}
		return r.object(field)
	default:
		return token, nil
	}
}

func (r *pushReader) list(field string) (any, error) {
	all := []any{}
	for r.decoder.More() {
		one, err := r.value(field)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	_, err := r.decoder.Token()
	return all, err
}

func (r *pushReader) object(field string) (any, error) {
	all := map[string]any{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint(token)
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		if all[name], err = r.value(cmp.Or(field, name)); err != nil {
			return nil, err
		}
	}
	_, err := r.decoder.Token()
	return all, err
}

// text reads a template. It puts a comment before the template with as many lines as precede it in the file, so that
// mistakes have the right line.
func (r *pushReader) text(field, body string) executor {
	clean := inert("")
	if field == "url" || field == "icon" {
		clean = segment
	}
	t := text.New(r.source.file).Option("missingkey=error").Funcs(r.functions).Funcs(map[string]any{inertName: clean})
	return r.parse(t, r.source, "{{/*"+strings.Repeat("\n", r.line()-1)+"*/}}"+body)
}

// segment is applied to each value that a template prints into an address. Unless the value is a Link, it becomes one
// segment of a path.
func segment(value any) (any, error) {
	switch value.(type) {
	case Link, Plain, nil:
		return inert("")(value)
	}
	return path(value)
}

// render adds the parts of a push beside title and body to a text.
func (p *push) render(out *Text, data Data) (err error) {
	for _, part := range []struct {
		into     *string
		executor executor
	}{{&out.URL, p.url}, {&out.Icon, p.icon}} {
		if err == nil && part.executor != nil {
			*part.into, err = execute(part.executor, data)
		}
	}
	if err != nil || p.data == nil {
		return err
	}
	filled, err := Fill(p.data, func(leaf any) (any, error) {
		if t, ok := leaf.(executor); ok {
			return execute(t, data)
		}
		return leaf, nil
	})
	if err != nil {
		return err
	}
	out.Data, err = json.Marshal(filled)
	return err
}

// Fill copies a JSON document, with the value that leaf returns for each value that is no list and no object.
func Fill(node any, leaf func(any) (any, error)) (_ any, err error) {
	switch n := node.(type) {
	case []any:
		list := make([]any, len(n))
		for i, child := range n {
			if list[i], err = Fill(child, leaf); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(n))
		for name, child := range n {
			if object[name], err = Fill(child, leaf); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return leaf(node)
}
