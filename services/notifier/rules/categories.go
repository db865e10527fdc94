package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// anyLocale names the title of a category for readers whose locale has none.
const anyLocale = "default"

// maxTitle bounds the title of a category, in bytes.
const maxTitle = 100

// Category is what users can switch off together.
type Category struct {
	// Channels are those on which users are told of it, in alphabetical order.
	Channels []string

	// Digest reports whether users can have it come together.
	Digest bool

	// Name is its name in rules and preferences.
	Name string

	titles map[string]string // by locale
}

// Title is what a category is called, and the language of that: "" when it is not known.
func (c Category) Title(locale string) (title, language string) {
	for tag := strings.ToLower(locale); tag != ""; tag = tag[:max(0, strings.LastIndexByte(tag, '-'))] {
		if title, found := c.titles[tag]; found {
			return title, tag
		}
	}
	words := strings.ReplaceAll(strings.ReplaceAll(c.Name, "_", " "), "-", " ")
	return cmp.Or(c.titles[anyLocale], strings.ToUpper(words[:1])+words[1:]), ""
}

// Categories returns what users of a kind can switch off, in the order of the names, and with the name [contracts.Anything] all that they
// get. What is critical comes all the same, and is in neither.
func (r *Rules) Categories(kind contracts.RecipientType) (all Category, each []Category) {
	all.Name = contracts.Anything
	byName := map[string]*Category{}
	for _, routes := range r.events {
		route, found := routes[kind]
		if !found || route.Priority == contracts.UrgencyCritical {
			continue
		}
		into := []*Category{&all}
		if name := route.Category; name != "" {
			if byName[name] == nil {
				byName[name] = &Category{Name: name, titles: r.titles[name]}
			}
			into = append(into, byName[name])
		}
		for _, c := range into {
			c.Channels = append(c.Channels, route.All()...)
			c.Digest = c.Digest || slices.ContainsFunc(route.Channels, func(on string) bool { return on != inbox })
		}
	}
	sorted := func(c Category) Category {
		slices.Sort(c.Channels)
		c.Channels = slices.Compact(c.Channels)
		return c
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		each = append(each, sorted(*byName[name]))
	}
	return sorted(all), each
}

// categories reads what categories are called: each by a text, or by one for each locale.
func (p *parser) categories(n *yaml.Node, path string) map[string]map[string]string {
	all := map[string]map[string]string{}
	p.each(n, path, func(key, value *yaml.Node, path string) {
		titles := map[string]string{}
		title := func(key, value *yaml.Node, path string) {
			text := p.text(value, path)
			if len(text) > maxTitle || strings.ContainsAny(text, "\r\n") {
				p.addf(value, path, "must be one line of at most %d bytes", maxTitle)
			}
			if !isName(key.Value) {
				p.addf(key, path, "is no locale: want one such as en-GB, or %s", anyLocale)
			}
			titles[strings.ToLower(key.Value)] = text
		}
		if !isName(key.Value) {
			p.addf(key, path, "is no category: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", contracts.MaxName)
		}
		if value.Kind == yaml.ScalarNode {
			title(&yaml.Node{Value: anyLocale}, value, path)
		} else {
			p.each(value, path, title)
		}
		all[key.Value] = titles
	})
	return all
}
