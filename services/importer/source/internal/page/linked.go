package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

// thing is an item of schema.org: the values of each property, in order. A value is a string or a thing; "@type" has
// the types.
type thing map[string][]any

// maxDepth is the largest depth of things within things. Deeper values are not read, and the page is reported as
// truncated.
const maxDepth = 24

// is reports whether the thing has a type, in any spelling: Recipe, recipe, schema:Recipe, http://schema.org/Recipe.
func (t thing) is(name string) bool {
	for _, value := range t["@type"] {
		text, ok := value.(string)
		if i := strings.LastIndexAny(text, "/:#"); ok && strings.EqualFold(strings.TrimSpace(text[i+1:]), name) {
			return true
		}
	}
	return false
}

// text returns, in one line, the first value of the properties that is a text, or the name of a thing.
func (t thing) text(properties ...string) string { return oneLine(t.lines(properties...)) }

// lines is text with the line breaks of the value.
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

// name returns a value as text.
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

// quotes makes straight quotes of those that blog software puts into scripts.
var quotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "″", `"`)

// linked reads the things of a script of JSON-LD. It leaves out what cannot be read, and lists it as faults.
func linked(script string, place func(script string, at int) string) (things []thing, deep bool, faults []string) {
	if !strings.Contains(script, `"`) {
		script = quotes.Replace(html.UnescapeString(script))
	}
	values, whole := decode(script)
	if !whole {
		l := lenient{text: script, place: func(at int) string { return place(script, at) }}
		values, faults = l.values(), l.faults
	}
	gather(fromJSON(values, 0, &deep), &things)
	return things, deep, faults
}

// decode reads a sequence of JSON values, and reports whether there is no other text.
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

// fromJSON returns a JSON value as a string, a thing, or a list of strings and things. When a value is nested too
// deeply, it leaves the value out and sets deep.
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
			if strings.Trim(key, "0123456789") == "" { // PHP writes a list with gaps as an object
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

// spellings has the names of the properties that are read, by their lower case. The context of schema.org permits id and type without
// the @.
var spellings = func() map[string]string {
	out := map[string]string{"id": "@id", "type": "@type"}
	for _, name := range append(recipe.Nutrients(), strings.Fields(`contentUrl cookTime embedUrl endOffset hasPart inLanguage itemListElement
		mainEntity mainEntityOfPage maxValue minValue performTime prepTime recipeCategory recipeCuisine recipeIngredient recipeInstructions
		recipeYield requiredQuantity startOffset thumbnailUrl totalTime unitText`)...) {
		out[strings.ToLower(name)] = name
	}
	return out
}()

// canonical returns the name of a property in any spelling: recipeYield, RecipeYield, schema:recipeYield.
func canonical(name string) string {
	name = strings.ToLower(name[strings.LastIndexAny(name, "/:#")+1:])
	return cmp.Or(spellings[name], name)
}

// isMain is the property that marks the main entity of another thing.
const isMain = "\x00main"

// gather collects the things that are recipes, or that references may name: lists in their order, and the parts of a thing
// after the thing.
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
		for _, item := range value["mainEntity"] {
			if main, ok := item.(thing); ok && !value.is("Recipe") {
				main[isMain] = []any{"yes"}
				if len(main["@type"]) == 0 { // a reference
					*out = append(*out, main)
				}
			}
		}
		for _, property := range []string{"@graph", "about", "mainEntity", "mainEntityOfPage", "itemListElement", "item", "hasPart"} {
			for _, item := range value[property] {
				gather(item, out)
			}
		}
	default:
	}
}

// begin begins an item, which is a thing of the page unless it is the value of a property. It reports whether there is room for it.
func (r *reader) begin(e *element, attrs attributes, referred, isProperty bool) bool {
	e.item = thing{}
	// An item within a named element refers to none, so no item becomes a part of itself.
	if refers := attrs["itemref"]; refers != "" && !referred && !slices.ContainsFunc(r.open, func(e element) bool { return e.named }) {
		r.refers = append(r.refers, reference{e.item, strings.Fields(refers)})
	}
	for kind := range strings.FieldsSeq(attrs["itemtype"]) {
		if !r.take(costOfValue + len(kind)) {
			return false
		}
		e.item["@type"] = append(e.item["@type"], kind)
	}
	if !isProperty {
		r.page.things = append(r.page.things, e.item)
	}
	return true
}

// data reads the microdata attributes of the start of an element, as HTML specifies
// (https://html.spec.whatwg.org/multipage/microdata.html). An element with an id that an itemref names is an item without
// a type, whose properties refer adds to the items that name it.
func (r *reader) data(e *element, attrs attributes) {
	isProperty := attrs.has("itemprop")
	id := attrs["id"]
	referred := r.referred[id] && r.named[id] == nil && r.depth() < maxDepth
	if !isProperty && !attrs.has("itemscope") && !referred {
		return
	}
	of, times := r.item()
	if referred {
		of, times = thing{}, 1
		r.named[id], e.named = of, true
		if !attrs.has("itemscope") {
			e.item = of
		}
	}
	names := strings.Fields(attrs["itemprop"])
	if of != nil && isProperty {
		e.times = min(times*len(names), maxRoom)
	}
	if attrs.has("itemscope") && (of != nil || !isProperty) {
		if r.depth() > maxDepth {
			r.page.Truncated = true
			return
		}
		if !r.begin(e, attrs, referred, isProperty) {
			return
		}
	}
	if of == nil || !isProperty {
		return
	}
	value, known := r.property(e, attrs, e.item != nil && attrs.has("itemscope"))
	for _, name := range names {
		if !r.take(times*costOfValue + len(name)) {
			return
		}
		e.add(of, name, value, known)
	}
}

// add adds the value of a property to an item: one that is not known is the text of the element.
func (e *element) add(of thing, name string, value any, known bool) {
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

// reference is an item that has the properties of the elements with these ids.
type reference struct {
	item thing
	ids  []string
}

// refer adds the properties of named elements to the items that refer to them.
func (r *reader) refer() {
	for _, reference := range r.refers {
		for _, id := range reference.ids {
			for name, values := range r.named[id] {
				if name != "@type" && r.take(costOfValue*len(values)) {
					reference.item[name] = append(reference.item[name], values...)
				}
			}
		}
	}
}

// item returns the innermost open item, nil outside all items, and the number of ways to it: an item may be the value of several
// properties of another, which is such a value itself.
func (r *reader) item() (thing, int) {
	for i := len(r.open) - 1; i >= 0; i-- {
		if e := &r.open[i]; e.item != nil {
			return e.item, max(1, e.times)
		}
	}
	return nil, 0
}

// depth returns the number of open items.
func (r *reader) depth() int {
	depth := 0
	for i := range r.open {
		if r.open[i].item != nil {
			depth++
		}
	}
	return depth
}

// property returns the value of a property. known is false when the value is the text of its element, which is still
// to be read.
func (r *reader) property(e *element, attrs attributes, isItem bool) (value any, known bool) {
	if isItem {
		return e.item, true
	}
	link := func(name string) (any, bool) {
		address := strings.TrimSpace(attrs[name])
		if !r.take(e.times * (len(r.page.address.Path) + len(address))) {
			return "", true
		}
		if u, err := r.page.address.Parse(address); err == nil {
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
	default: // HTML permits it for meta only, but many pages have it elsewhere
		name = "content"
	}
	if text := attrs[name]; attrs.has(name) && r.take(e.times*len(text)) {
		return text, true
	}
	return "", e.name == "meta" || name == "value"
}
