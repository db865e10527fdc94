package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// jsonArray reads an array of objects.
func jsonArray(data []byte) iter.Seq2[*row, error] {
	return func(yield func(*row, error) bool) {
		lines := lineCounter{data: data}
		decoder := json.NewDecoder(bytes.NewReader(data))

		if _, err := decoder.Token(); err != nil { // The bracket.
			yield(nil, fmt.Errorf("%w: %w", ErrFormat, err))
			return
		}

		for decoder.More() {
			var object json.RawMessage

			err := decoder.Decode(&object)
			offset := int(decoder.InputOffset())

			if err != nil {
				yield(nil, fmt.Errorf("%w: line %d: %w", ErrFormat, lines.at(offset), err))
				return
			}

			if !yield(jsonRow(object, lines.at(offset-len(object))), nil) {
				return
			}
		}

		if _, err := decoder.Token(); err != nil {
			yield(nil, fmt.Errorf("%w: the array has no end: %w", ErrFormat, err))
		} else if rest := bytes.TrimSpace(data[decoder.InputOffset():]); len(rest) > 0 {
			yield(nil, fmt.Errorf("%w: line %d: something follows the array", ErrFormat, lines.at(int(decoder.InputOffset()))))
		}
	}
}

// jsonLines reads an object from each line. A line that is none spoils no other.
func jsonLines(data []byte) iter.Seq2[*row, error] {
	return func(yield func(*row, error) bool) {
		line := 0
		for text := range bytes.Lines(data) {
			line++

			if text = bytes.TrimSpace(text); len(text) > 0 && !yield(jsonRow(text, line), nil) {
				return
			}
		}
	}
}

// jsonRow reads one object.
func jsonRow(object []byte, line int) *row {
	r := &row{fields: make(map[column]string), line: line, raw: object}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || fields == nil {
		return r.refuse("it is not a JSON object: " + reason(err))
	}

	r.setAll(fields, true)
	return r
}

func reason(err error) string {
	if err == nil {
		return "null"
	}
	return err.Error()
}

// setAll takes the fields of an object in, and of the object that is its location.
func (r *row) setAll(fields map[string]json.RawMessage, outermost bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]

		switch c := columnOf(name); {
		case outermost && (name == "location" || name == "geo"):
			r.setLocation(value)
		case c == "":
		case r.fields[c] != "":
			r.problems = append(r.problems, fmt.Sprintf("the %s is given twice", c))
		case c == colAliases && bytes.HasPrefix(value, []byte("[")):
			r.setAliases(value)
		default:
			text, err := scalar(value)
			if err != nil {
				r.problems = append(r.problems, fmt.Sprintf("the %s is %v", c, err))
			}

			r.set(c, text)
		}
	}
}

// setLocation reads {"lat": ..., "lng": ...}. Other shapes say nothing we rely on.
func (r *row) setLocation(value json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil {
		r.problems = append(r.problems, "the location is not an object with lat and lng")
		return
	}

	for name := range fields {
		if c := columnOf(name); c != colLat && c != colLng {
			delete(fields, name)
		}
	}

	r.setAll(fields, false)
}

func (r *row) setAliases(value json.RawMessage) {
	var list []string
	if json.Unmarshal(value, &list) != nil {
		r.problems = append(r.problems, "the aliases are not a list of texts")
	}

	if len(value) > maxField {
		r.problems = append(r.problems, fmt.Sprintf("the aliases have %d bytes, more than %d", len(value), maxField))
		return
	}

	r.addAliases(list...)
}

// scalar is the text of a string, a number or null.
func scalar(value json.RawMessage) (string, error) {
	switch value[0] {
	case '"':
		var text string

		err := json.Unmarshal(value, &text)
		return text, err //nolint:wrapcheck // Not reached: the object was parsed as a whole.
	case 'n':
		return "", nil
	case '[', '{', 't', 'f':
		return "", errors.New("neither a text nor a number")
	default:
		return string(value), nil
	}
}
