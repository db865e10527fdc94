package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/locale"
)

// MaxFile bounds a file of rules, in bytes.
const MaxFile = 1 << 20

// anyEvent stands for all types of events that are not named.
const anyEvent = "*"

// Scope selects the recipients of a kind that an event concerns.
type Scope string

// The scopes.
const (
	// ScopeAggregate is the members of the event's aggregate in the directory.
	ScopeAggregate Scope = "aggregate"
	// ScopeAll is every recipient of the kind.
	ScopeAll Scope = "all"
	// ScopeUser is the user that the event names.
	ScopeUser Scope = "user"
)

// Route is the way in which one kind of recipient is notified of one type of event.
type Route struct {
	// Channels are the names of the channels, each once.
	Channels []string `json:"channels"`

	// Fallback are the names of channels, one of which is to notify the user: the first, and each next one when the one
	// before has not.
	Fallback []string `json:"fallback,omitempty"`

	// FallbackAfter is the time for which a channel of Fallback is tried before the next one. 0 means until its attempts
	// are used up.
	FallbackAfter time.Duration `json:"fallback_after,omitempty"`

	// Category groups routes that users can switch off together. "" is none.
	Category string `json:"category,omitempty"`

	// Digest lets notifications be delivered together on some of the channels. nil is never.
	Digest *Digest `json:"digest,omitempty"`

	// Later are more channels, on which the user is notified some time after the others.
	Later []Later `json:"later,omitempty"`

	// Priority is the urgency.
	Priority string `json:"priority,omitempty"`

	// Scope selects the recipients.
	Scope Scope `json:"scope"`

	// Template names the text. "" is the template of the type of event.
	Template string `json:"template,omitempty"`

	// Throttle bounds the notifications of each user on each channel. nil is no bound.
	Throttle *contracts.Throttle `json:"throttle,omitempty"`
}

// Starts returns the channels on which a user has a notification from the beginning: all of Channels, the first of Fallback, and the
// channels of Later.
func (r Route) Starts() []string {
	starts := slices.Clip(r.Channels)
	if len(r.Fallback) > 0 {
		starts = append(starts, r.Fallback[0])
	}
	for _, later := range r.Later {
		starts = append(starts, later.Channels...)
	}
	return starts
}

// All returns all channels on which a user may have a notification.
func (r Route) All() []string {
	starts := r.Starts()
	if len(r.Fallback) > 1 {
		starts = slices.Concat(starts, r.Fallback[1:])
	}
	return starts
}

// Rules is a file of rules without mistakes. It does not change, and is safe for concurrent use.
type Rules struct {
	events  map[string]map[contracts.RecipientType]Route
	titles  map[string]map[string]string // of categories, by locale
	version string
}

// Check returns a further problem of a route, such as that its text is missing, or "".
type Check func(eventType string, route Route) (problem string)

// Load reads a file, see [Parse].
func Load(path string, channels []string, checks ...Check) (*Rules, error) {
	data, err := private.ReadFile(path, MaxFile)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	rules, err := Parse(data, channels, checks...)
	if err != nil {
		return nil, fmt.Errorf("rules: %s: %w", path, err)
	}
	return rules, nil
}

// Parse reads rules. channels has the names of all channels: a rule for another channel is a mistake, and so is a
// problem that a check returns. The error is an [*Error].
func Parse(data []byte, channels []string, checks ...Check) (*Rules, error) {
	p := parser{channels: channels, checks: checks}
	events := p.file(data)
	if len(p.mistakes) > 0 {
		slices.SortStableFunc(p.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
		return nil, &Error{Mistakes: p.mistakes}
	}
	sum := sha256.Sum256(data)
	return &Rules{events: events, titles: p.titles, version: hex.EncodeToString(sum[:8])}, nil
}

// ParseRoute reads the route of one event by itself, as [Parse] reads a file. The paths of mistakes begin at the route.
func ParseRoute(eventType string, data []byte, channels []string, checks ...Check) (Route, error) {
	p := parser{channels: channels, checks: checks}
	var document yaml.Node
	var route Route
	if err := yaml.Unmarshal(data, &document); err != nil || document.Kind == 0 {
		p.addf(&yaml.Node{}, "", "must be a mapping of names to values")
	} else {
		route = p.checked(document.Content[0], document.Content[0], "", eventType)
	}
	if len(p.mistakes) > 0 {
		return Route{}, &Error{Mistakes: p.mistakes}
	}
	return route, nil
}

// For returns the routes of a type of event by kind of recipient, nil when nobody is notified of the type. The map must
// not be changed.
func (r *Rules) For(eventType string) map[contracts.RecipientType]Route {
	if routes, ok := r.events[eventType]; ok {
		return routes
	}
	return r.events[anyEvent]
}

// Version identifies the text of the rules: the same text has the same version.
func (r *Rules) Version() string { return r.version }

// maxTitle bounds the title of a category, in bytes.
const maxTitle = 100

// Category is a group of messages that users can switch off together.
type Category struct {
	// Channels are the channels on which users are notified of the category, in alphabetical order.
	Channels []string

	// Digest reports whether users can choose digests for the category.
	Digest bool

	// Name is the name of the category in rules and preferences.
	Name string

	titles map[string]string // by locale
}

// Title returns the title of a category, and the language of the title, "" when it is not known.
func (c Category) Title(reader string) (title, language string) {
	// Nobody says what language the default titles are in. That of templates is en, too, unless it is set.
	if tag := locale.Among("en", slices.Collect(maps.Keys(c.titles))...).Best(reader); tag != locale.Default {
		return c.titles[tag], tag
	}
	words := strings.ReplaceAll(strings.ReplaceAll(c.Name, "_", " "), "-", " ")
	return cmp.Or(c.titles[locale.Default], strings.ToUpper(words[:1])+words[1:]), ""
}

// Categories returns the categories that users of a kind can switch off, in the order of their names, and as all, with the
// name [contracts.Anything], everything that the users get. Critical messages cannot be switched off, and are in neither.
func (r *Rules) Categories(kind contracts.RecipientType) (all Category, each []Category) {
	all.Name = contracts.Anything
	byName := map[string]*Category{}
	for _, routes := range r.events {
		route, found := routes[kind]
		if !found || route.Priority == "critical" {
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

// CategoryNames returns the names of all categories in alphabetical order: those of routes, and those with titles.
func (r *Rules) CategoryNames() []string {
	names := slices.Collect(maps.Keys(r.titles))
	for _, routes := range r.events {
		for _, route := range routes {
			names = append(names, route.Category)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// categories reads the titles of categories: each is a text, or one for each locale.
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
				p.addf(key, path, "is no locale: want one such as en-GB, or %s", locale.Default)
			}
			titles[locale.Normalize(key.Value)] = text
		}
		if !isName(key.Value) {
			p.addf(key, path, "is no category: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", contracts.MaxName)
		}
		if value.Kind == yaml.ScalarNode {
			title(&yaml.Node{Value: locale.Default}, value, path)
		} else {
			p.each(value, path, title)
		}
		all[key.Value] = titles
	})
	return all
}

// Mistake is a mistake in a file of rules.
type Mistake struct {
	// Line is the line of the mistake, counted from 1; 0 stands for the whole file.
	Line int

	// Path is the place in the file, such as events.RESERVATION_REQUESTED.CUSTOMER.channels.
	Path string

	// Problem describes the mistake, and the expected value.
	Problem string
}

// String returns the place and the problem.
func (m Mistake) String() string {
	text := m.Problem
	if m.Path != "" {
		text = m.Path + " " + text
	}
	if m.Line > 0 {
		text = fmt.Sprintf("line %d: %s", m.Line, text)
	}
	return text
}

// Error is returned for a file of rules that has mistakes.
type Error struct {
	// Mistakes are all mistakes, in the order of the lines.
	Mistakes []Mistake
}

// Error returns all mistakes, one on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}
