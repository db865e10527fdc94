package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// maxMistakes is the number of mistakes that are reported. A text with more was not meant as rules.
const maxMistakes = 100

// parser walks a document and collects its mistakes.
type parser struct {
	channels []string
	checks   []Check
	digests  map[string]string // the templates of digests, by kind and category
	mistakes []Mistake
	titles   map[string]map[string]string // of categories, by locale
}

func (p *parser) addf(at *yaml.Node, path, format string, args ...any) {
	if len(p.mistakes) < maxMistakes {
		p.mistakes = append(p.mistakes, Mistake{Line: at.Line, Path: path, Problem: fmt.Sprintf(format, args...)})
	}
}

func (p *parser) file(data []byte) map[string]map[contracts.RecipientType]Route {
	var document yaml.Node
	switch err := yaml.Unmarshal(data, &document); {
	case len(data) > MaxFile:
		p.addf(&yaml.Node{}, "", "the file has more than %d bytes", MaxFile)
		return nil
	case err != nil:
		p.syntax(err)
		return nil
	case document.Kind == 0:
		p.addf(&yaml.Node{}, "", "the file is empty")
		return nil
	}
	events := map[string]map[contracts.RecipientType]Route{}
	var version, list *yaml.Node
	p.mapping(document.Content[0], "", map[string]func(*yaml.Node, string){
		"version":    func(n *yaml.Node, _ string) { version = n },
		"events":     func(n *yaml.Node, _ string) { list = n },
		"categories": func(n *yaml.Node, path string) { p.titles = p.categories(n, path) },
	})
	if root := document.Content[0]; root.Kind != yaml.MappingNode {
		return nil
	} else if version == nil {
		p.addf(root, "version", "is missing: want 1")
	} else if version.Value != "1" {
		p.addf(version, "version", "is %q: want 1", clip(version.Value))
	}
	if list == nil {
		p.addf(document.Content[0], "events", "is missing")
		return nil
	}
	p.each(list, "events", func(key, value *yaml.Node, path string) {
		if len(key.Value) > contracts.MaxID {
			p.addf(key, "events", "has a type of %d bytes, at most %d", len(key.Value), contracts.MaxID)
		}
		events[key.Value] = p.event(key.Value, value, path)
	})
	return events
}

// yamlLine matches the library's error for text that is not YAML, with the line.
var yamlLine = lazyregexp.New(`^(?:yaml: )?line (\d+): (.*)`)

func (p *parser) syntax(err error) {
	texts := []string{err.Error()}
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		texts = all.Errors
	}
	for _, text := range texts {
		at := &yaml.Node{}
		if found := yamlLine.FindStringSubmatch(text); found != nil {
			at.Line, _ = strconv.Atoi(found[1]) // digits only
			text = found[2]
		}
		p.addf(at, "", "not YAML: %s", strings.TrimPrefix(text, "yaml: "))
	}
}

func (p *parser) event(eventType string, n *yaml.Node, path string) map[contracts.RecipientType]Route {
	routes := map[contracts.RecipientType]Route{}
	p.each(n, path, func(key, value *yaml.Node, path string) {
		kind := contracts.RecipientType(key.Value)
		switch {
		case kind == "BROADCAST":
			p.addf(key, path, "is no kind of recipient: name the kinds, each with a scope")
		case !isName(key.Value):
			p.addf(key, path, "is no kind of recipient: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", contracts.MaxName)
		default:
			routes[kind] = p.checked(key, value, path, eventType)
			p.agree(value, path, key.Value, routes[kind])
		}
	})
	return routes
}

// checked reads a route, and runs the checks on it.
func (p *parser) checked(key, value *yaml.Node, path, eventType string) Route {
	route := p.route(value, path)
	for _, check := range p.checks {
		if problem := check(eventType, route); problem != "" {
			p.addf(key, path, "%s", problem)
		}
	}
	return route
}

func (p *parser) route(n *yaml.Node, path string) Route {
	var order, after *yaml.Node // fallback, and a fallback_after before it
	route := Route{Priority: "normal", Scope: ScopeAggregate}
	seen := p.mapping(n, path, map[string]func(*yaml.Node, string){
		"category": func(n *yaml.Node, path string) { route.Category = p.name(n, path) },
		"channels": func(n *yaml.Node, path string) { route.Channels = p.list(n, path) },
		"digest":   func(n *yaml.Node, path string) { route.Digest = p.digest(n, path) },
		"fallback": func(n *yaml.Node, path string) { order, route.Fallback = n, p.list(n, path) },
		"fallback_after": func(n *yaml.Node, path string) {
			route.FallbackAfter = p.wait(n, path, maxWait)
			if order == nil {
				after = n
			}
		},
		"later": func(n *yaml.Node, path string) { route.Later = p.laters(n, path) },
		"priority": func(n *yaml.Node, path string) {
			route.Priority = oneOf(p, n, path,
				"low", "normal", "high", "critical")
		},
		"scope": func(n *yaml.Node, path string) {
			route.Scope = oneOf(p, n, path, ScopeUser, ScopeAggregate, ScopeAll)
		},
		"template": func(n *yaml.Node, path string) { route.Template = p.short(n, path) },
		"throttle": func(n *yaml.Node, path string) { route.Throttle = p.throttle(n, path) },
	})
	p.finish(n, path, &route)
	p.afterwards(n, path, route)
	if order != nil {
		p.once(order, path+".fallback", route.Fallback, route.Channels)
	} else if after != nil {
		p.addf(after, path+".fallback_after", "needs a fallback: want one, a list of %s", strings.Join(p.channels, ", "))
	}
	if n.Kind == yaml.MappingNode && !seen["channels"] && !seen["fallback"] {
		p.addf(n, path+".channels", "is missing: want a list of %s", strings.Join(p.channels, ", "))
	}
	return route
}

// once checks that channels are in no other part of a route.
func (p *parser) once(n *yaml.Node, path string, names, elsewhere []string) {
	for _, name := range names {
		if slices.Contains(elsewhere, name) {
			p.addf(n, path, "has %q, which the route has elsewhere", clip(name))
		}
	}
}

// maxWait bounds the time for which a channel is tried before the next one.
const maxWait = 7 * 24 * time.Hour

func (p *parser) wait(n *yaml.Node, path string, most time.Duration) time.Duration {
	text := p.text(n, path)
	if text == "" {
		return 0
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < time.Second || wait > most || wait%time.Second != 0 {
		p.addf(n, path, "is %q: want whole seconds such as 10m, at most %.0fh", clip(text), most.Hours())
	}
	return wait
}

func (p *parser) list(n *yaml.Node, path string) []string {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.addf(n, path, "must be a list of %s", strings.Join(p.channels, ", "))
		return nil
	}
	var names []string
	for _, item := range n.Content {
		name := p.text(item, path)
		switch {
		case name == "":
		case !slices.Contains(p.channels, name):
			p.addf(item, path, "has %q: want %s", clip(name), strings.Join(p.channels, ", "))
		case slices.Contains(names, name):
			p.addf(item, path, "has %q twice", clip(name))
		default:
			names = append(names, name)
		}
	}
	return names
}

// mapping passes each member to the function for its name, and returns the names of the members. Those of required have to be there.
func (p *parser) mapping(n *yaml.Node, path string, known map[string]func(*yaml.Node, string), required ...string) map[string]bool {
	seen := map[string]bool{}
	p.each(n, path, func(key, value *yaml.Node, path string) {
		seen[key.Value] = true
		if read := known[key.Value]; read != nil {
			read(value, path)
			return
		}
		p.addf(key, path, "is not known here: want %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	})
	for _, name := range required {
		if n.Kind == yaml.MappingNode && !seen[name] {
			p.addf(n, path+"."+name, "is missing")
		}
	}
	return seen
}

// each calls f with the members of a mapping. It refuses anchors, because a few of them make a small file a huge one.
func (p *parser) each(n *yaml.Node, path string, f func(key, value *yaml.Node, path string)) {
	if n.Kind != yaml.MappingNode {
		p.addf(n, path, "must be a mapping of names to values")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+clip(key.Value), ".")
		first, twice := seen[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "" || key.Tag == "!!merge":
			p.addf(key, path, "has a name that is none")
		case value.Kind == yaml.AliasNode:
			p.addf(value, at, "is an alias: write it out")
		case twice:
			p.addf(key, at, "is there twice, first in line %d", first)
		default:
			seen[key.Value] = key.Line
			f(key, value, at)
		}
	}
}

func (p *parser) text(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		p.addf(n, path, "must be a text")
		return ""
	}
	return n.Value
}

func (p *parser) name(n *yaml.Node, path string) string {
	text := p.text(n, path)
	if text != "" && !isName(text) {
		p.addf(n, path, "is %q: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", clip(text), contracts.MaxName)
	}
	return text
}

func oneOf[T ~string](p *parser, n *yaml.Node, path string, allowed ...T) T {
	text := T(p.text(n, path))
	if text != "" && !slices.Contains(allowed, text) {
		names := make([]string, len(allowed))
		for i := range allowed {
			names[i] = string(allowed[i])
		}
		p.addf(n, path, "is %q: want %s", clip(string(text)), strings.Join(names, ", "))
	}
	return text
}

func isName(s string) bool { return len(s) <= contracts.MaxName && subject.IsSafeToken(s) }

// clip shortens a text of the file for a mistake.
func clip(s string) string { return redact.Shorten(s, contracts.MaxName) }
