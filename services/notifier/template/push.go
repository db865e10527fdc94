package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	text "text/template"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// push has the parts that a channel of the kind Push shows in addition to a subject and a text, or instead of them.
type push struct {
	body, icon, title, url executor
	data                   any // JSON, in which a text is an executor
}

// push reads a file that describes a push. The texts in it are templates, so that no value can become anything but a text.
func (p *parser) push(s source, body string) *push {
	lineAt := func(offset int64) int { return 1 + strings.Count(body[:offset], "\n") }
	texts := jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, into *any) error {
		switch d.PeekKind() {
		case '"':
			token, err := d.ReadToken()
			if err == nil {
				*into = p.pushText(s, d.StackPointer(), lineAt(d.InputOffset()), token.String())
			}
			return err
		case '0': // a number stays as it is written
			number, err := d.ReadValue()
			*into = json.Number(number)
			return err
		default:
			return errors.ErrUnsupported
		}
	})
	var document any
	err := jsonv2.Unmarshal([]byte(body), &document, jsonv2.WithUnmarshalers(texts))
	object, ok := document.(map[string]any)
	out := &push{}
	if err != nil || !ok {
		line := 1
		if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			line = lineAt(wrong.ByteOffset)
		}
		p.mistakef(s.file, line, "%v", cmp.Or(err, errors.New("want a JSON object")))
		out.title, out.body = text.New(s.file), text.New(s.file) // so that they are not reported as missing, too
		return out
	}
	into := map[string]*executor{"body": &out.body, "icon": &out.icon, "title": &out.title, "url": &out.url}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, isText := object[name].(executor)
		switch {
		case name == "data":
			out.data = object[name]
		case into[name] == nil:
			p.mistakef(s.file, 0, "there is no field %s: want title, body, url, icon or data", name)
		case !isText:
			p.mistakef(s.file, 0, "%s is no text", name)
		default:
			*into[name] = value
		}
	}
	return out
}

// pushText reads a template. It puts a comment before the template with as many lines as precede it in the file, so that mistakes have
// the right line.
func (p *parser) pushText(s source, at jsontext.Pointer, line int, body string) executor {
	clean := inert("")
	if at == "/url" || at == "/icon" {
		clean = segment
	}
	t := text.New(s.file).Option("missingkey=error").Funcs(p.functions).Funcs(map[string]any{inertName: clean})
	return p.parse(t, s, "{{/*"+strings.Repeat("\n", line-1)+"*/}}"+body)
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
