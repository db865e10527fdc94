package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// thing is an item of schema.org: the values of each property, in order. A value is a string or a thing; "@type" holds types.
type thing map[string][]any

// maxDepth is how deep things can be within each other: deeper ones are not read, and the page is reported as truncated.
const maxDepth = 24

// is reports whether the thing is of a type, however that is written: Recipe, recipe, schema:Recipe, http://schema.org/Recipe.
func (t thing) is(name string) bool {
	for _, value := range t["@type"] {
		text, ok := value.(string)
		if i := strings.LastIndexAny(text, "/:#"); ok && strings.EqualFold(strings.TrimSpace(text[i+1:]), name) {
			return true
		}
	}
	return false
}

// text returns the first value of the properties that is a text, or the name of a thing, in one line.
func (t thing) text(properties ...string) string { return oneLine(t.lines(properties...)) }

// lines is text with the lines that the value has.
func (t thing) lines(properties ...string) string {
	for _, property := range properties {
		for _, value := range t[property] {
			if text := name(value); strings.TrimSpace(text) != "" {
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

// wrapping matches the text before and behind the data of a script that hid it from old browsers.
var wrapping = regexp.MustCompile(`^[\s\x{feff}]*(?:(?://|/\*)?\s*(?:<!--|<!\[CDATA\[)\s*(?:\*/)?\s*)*|` +
	`[\s;]*(?:(?://|/\*)?\s*(?:-->|\]\]>)\s*(?:\*/)?[\s;]*)*$`)

// linked reads the things of a script of JSON-LD. A script that cannot be read, even when it is repaired, has
// none.
func linked(script string) (things []thing, deep bool) {
	script = wrapping.ReplaceAllString(script, "")
	if !strings.Contains(script, `"`) {
		script = html.UnescapeString(script)
	}
	values, whole := decode(script)
	if !whole {
		read := len(values)
		if values, _ = decode(repair(script)); len(values) < read {
			values, _ = decode(script)
		}
	}
	gather(fromJSON(values, 0, &deep), &things)
	return things, deep
}

// decode reads the values that stand one behind the other, and reports whether they are all there is.
func decode(script string) (values []any, whole bool) {
	decoder := json.NewDecoder(strings.NewReader(script))
	decoder.UseNumber()
	for {
		var value any
		if err := decoder.Decode(&value); err != nil {
			return values, errors.Is(err, io.EOF)
		}
		values = append(values, value)
	}
}

// fromJSON turns a value of JSON into a string, a thing, or a list of them. It sets deep where it leaves a value out.
func fromJSON(value any, depth int, deep *bool) any {
	if depth > maxDepth {
		*deep = true
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
			out = with(out, fromJSON(item, depth+1, deep))
		}
		return out
	case map[string]any:
		keys := slices.SortedFunc(maps.Keys(value), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		out, list := thing{}, []any(nil)
		for _, key := range keys {
			item, property := fromJSON(value[key], depth+1, deep), canonical(key)
			if strings.Trim(key, "0123456789") == "" { // a list, as PHP writes one that has gaps
				list = with(list, item)
			} else if values := with(out[property], item); len(values) > 0 {
				out[property] = values
			}
		}
		if len(out) == 0 {
			return list
		}
		return out
	default:
		return nil
	}
}

// with adds a value, or the values of a list, to a list.
func with(values []any, value any) []any {
	switch value := value.(type) {
	case nil:
		return values
	case []any:
		return append(values, value...)
	default:
		return append(values, value)
	}
}

// spellings are the names of properties that are read, by the names in lower case. The context of schema.org lets id and type pass without
// the sign.
var spellings = func() map[string]string {
	out := map[string]string{"id": "@id", "type": "@type"}
	for name := range strings.FieldsSeq(`cookTime hasPart inLanguage itemListElement mainEntity mainEntityOfPage maxValue minValue performTime
		prepTime recipeIngredient recipeInstructions recipeYield requiredQuantity totalTime unitText`) {
		out[strings.ToLower(name)] = name
	}
	return out
}()

// canonical is the name of a property, however it is written: recipeYield, RecipeYield, schema:recipeYield.
func canonical(name string) string {
	name = strings.ToLower(name[strings.LastIndexAny(name, "/:#")+1:])
	return cmp.Or(spellings[name], name)
}

// gather collects the things that are recipes, or may be referred to, in the order of a walk: lists in their order, and the
// parts of a thing after it.
func gather(value any, out *[]thing) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			gather(item, out)
		}
	case thing:
		if len(value["@type"]) > 0 {
			*out = append(*out, value)
		}
		for _, property := range []string{"@graph", "about", "mainEntity", "mainEntityOfPage", "itemListElement", "item", "hasPart"} {
			for _, item := range value[property] {
				gather(item, out)
			}
		}
	default:
	}
}

// data reads the attributes of microdata of an element that begins, as HTML says
// (https://html.spec.whatwg.org/multipage/microdata.html), without itemref.
func (r *reader) data(e *element, attrs attributes) {
	of := r.item()
	isProperty := attrs.has("itemprop")
	if attrs.has("itemscope") && (of != nil || !isProperty) {
		if r.depth() > maxDepth {
			r.page.Truncated = true
			return
		}
		e.item = thing{}
		for kind := range strings.FieldsSeq(attrs.get("itemtype")) {
			if !r.take(costOfValue + len(kind)) {
				return
			}
			e.item["@type"] = append(e.item["@type"], kind)
		}
		if !isProperty {
			r.page.things = append(r.page.things, e.item)
		}
	}
	if of == nil || !isProperty {
		return
	}
	value, known := r.property(e, attrs)
	for name := range strings.FieldsSeq(attrs.get("itemprop")) {
		if !r.take(costOfValue + len(name)) {
			return
		}
		of[name] = append(of[name], value)
		if at, next := len(of[name])-1, e.fill; !known {
			e.fill = func(text string) {
				of[name][at] = text
				if next != nil {
					next(text)
				}
			}
		}
	}
}

// item is the innermost item that is open, nil outside of all.
func (r *reader) item() thing {
	for _, e := range slices.Backward(r.open) {
		if e.item != nil {
			return e.item
		}
	}
	return nil
}

// depth is how many items are open.
func (r *reader) depth() int {
	depth := 0
	for i := range r.open {
		if r.open[i].item != nil {
			depth++
		}
	}
	return depth
}

// property is the value of a property, unless that is the text of its element, which is not known yet.
func (r *reader) property(e *element, attrs attributes) (value any, known bool) {
	if e.item != nil {
		return e.item, true
	}
	link := func(name string) (any, bool) {
		if u, err := r.page.address.Parse(strings.TrimSpace(attrs.get(name))); err == nil && r.take(len(u.Path)+len(u.RawQuery)) {
			return u.String(), true
		}
		return "", true
	}
	var name string
	switch e.name {
	case "a", "area", "link":
		return link("href")
	case "audio", "embed", "iframe", "img", "source", "track", "video":
		return link("src")
	case "object":
		return link("data")
	case "data", "meter":
		name = "value"
	case "time":
		name = "datetime"
	default: // which is not in the rules for all but meta, and on many pages
		name = "content"
	}
	if text := attrs.get(name); attrs.has(name) && r.take(len(text)) {
		return text, true
	}
	return "", e.name == "meta" || name == "value"
}
