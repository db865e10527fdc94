package page

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func isScope(node *html.Node) bool { return hasAttribute(node, "itemscope") }

// microdata reads an item as HTML says (https://html.spec.whatwg.org/multipage/microdata.html), without itemref.
func microdata(node *html.Node, address *url.URL) thing {
	out := thing{}
	for kind := range strings.FieldsSeq(attribute(node, "itemtype")) {
		out["@type"] = append(out["@type"], kind)
	}
	properties(node, out, address, 0)
	return out
}

// properties adds the properties of the children of a node to an item.
func properties(node *html.Node, out thing, address *url.URL, depth int) {
	if depth > maxDepth*4 { // pages nest deeper than data
		return
	}
	for child := range node.ChildNodes() {
		if child.Type != html.ElementNode {
			continue
		}
		names := strings.Fields(attribute(child, "itemprop"))
		if len(names) > 0 {
			value := property(child, address)
			for _, name := range names {
				out[name] = append(out[name], value)
			}
		}
		if !isScope(child) {
			properties(child, out, address, depth+1)
		}
	}
}

// property is the value of a property.
func property(node *html.Node, address *url.URL) any {
	if isScope(node) {
		return microdata(node, address)
	}
	link := func(name string) string {
		if u, err := address.Parse(strings.TrimSpace(attribute(node, name))); err == nil {
			return u.String()
		}
		return ""
	}
	switch node.DataAtom {
	case atom.Meta:
		return attribute(node, "content")
	case atom.A, atom.Area, atom.Link:
		return link("href")
	case atom.Audio, atom.Embed, atom.Iframe, atom.Img, atom.Source, atom.Track, atom.Video:
		return link("src")
	case atom.Object:
		return link("data")
	case atom.Data, atom.Meter:
		return attribute(node, "value")
	case atom.Time:
		if hasAttribute(node, "datetime") {
			return attribute(node, "datetime")
		}
	default:
		if hasAttribute(node, "content") { // not in the rules, and on many pages
			return attribute(node, "content")
		}
	}
	return plain(node)
}
