package page

import (
	"slices"
	"strings"
)

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
