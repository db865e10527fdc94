package page

import (
	"encoding/json"
	"strings"
)

// thing is an item of schema.org: the values of each property, in order. A value is a string or a thing; "@type" holds types.
type thing map[string][]any

// maxDepth is how deep things are looked into.
const maxDepth = 24

// is reports whether the thing is of a type, however that is written: Recipe, schema:Recipe, http://schema.org/Recipe.
func (t thing) is(name string) bool {
	for _, value := range t["@type"] {
		text, ok := value.(string)
		if i := strings.LastIndexAny(text, "/:#"); ok && text[i+1:] == name {
			return true
		}
	}
	return false
}

// text returns the first value of the properties that is a text, or the name of a thing.
func (t thing) text(properties ...string) string {
	for _, property := range properties {
		for _, value := range t[property] {
			if text := oneLine(name(value)); text != "" {
				return text
			}
		}
	}
	return ""
}

// name is a value as text.
func name(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case thing:
		return value.text("name", "text", "@value", "url", "@id")
	default:
		return ""
	}
}

// linked reads the things of a script of JSON-LD. What cannot be read is nothing.
func linked(script string) []thing {
	script = strings.TrimSpace(script)
	for _, mark := range []string{"<!--", "//<![CDATA[", "<![CDATA["} {
		script = strings.TrimSpace(strings.TrimPrefix(script, mark))
	}
	for _, mark := range []string{"-->", "//]]>", "]]>", ";"} {
		script = strings.TrimSpace(strings.TrimSuffix(script, mark))
	}
	decoder := json.NewDecoder(strings.NewReader(strings.Map(withoutControl, script)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	var out []thing
	gather(fromJSON(value, 0), 0, &out)
	return out
}

// withoutControl makes spaces of the line breaks that writers of JSON-LD leave in strings, where JSON has none.
func withoutControl(r rune) rune {
	if r < ' ' {
		return ' '
	}
	return r
}

// fromJSON turns a value of JSON into a string, a thing, or a list of them.
func fromJSON(value any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch value := value.(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	case []any:
		var out []any
		for _, item := range value {
			switch item := fromJSON(item, depth+1).(type) {
			case nil:
			case []any:
				out = append(out, item...)
			default:
				out = append(out, item)
			}
		}
		return out
	case map[string]any:
		out := thing{}
		for property, item := range value {
			switch item := fromJSON(item, depth+1).(type) {
			case nil:
			case []any:
				out[property] = item
			default:
				out[property] = []any{item}
			}
		}
		return out
	default:
		return nil
	}
}

// gather collects the things that are recipes, or may be referred to, in the order of a walk: lists in their order, and the
// parts of a thing after it.
func gather(value any, depth int, out *[]thing) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			gather(item, depth+1, out)
		}
	case thing:
		if len(value["@type"]) > 0 {
			*out = append(*out, value)
		}
		for _, property := range []string{"@graph", "mainEntity", "mainEntityOfPage", "itemListElement", "item", "hasPart"} {
			for _, item := range value[property] {
				gather(item, depth+1, out)
			}
		}
	default:
	}
}
