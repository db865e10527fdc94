package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
)

// The bounds of digests and throttles, which Validate of their types has too.
const (
	maxDigestTimes    = 24
	maxThrottle       = 100
	maxThrottlePeriod = 7 * 24 * time.Hour
)

// Digest has the channels of a route that deliver its notifications in digests, and the times.
type Digest struct {
	contracts.Digest

	// Channels are the names of the channels, each once.
	Channels []string `json:"channels"`
}

// DigestOn is the digest of a channel, nil when there is none.
func (r Route) DigestOn(channel string) *contracts.Digest {
	if r.Digest == nil || !slices.Contains(r.Digest.Channels, channel) {
		return nil
	}
	return &r.Digest.Digest
}

// digest reads the times at which a route's notifications are delivered together. The channels of the digest are checked when
// the channels of the route are known.
func (p *parser) digest(n *yaml.Node, path string) *Digest {
	var d Digest
	seen := p.mapping(n, path, map[string]func(*yaml.Node, string){
		"at":    func(n *yaml.Node, path string) { d.At = p.times(n, path) },
		"every": func(n *yaml.Node, path string) { d.Every = p.partOfDay(n, path) },
		"channels": func(n *yaml.Node, path string) {
			d.Channels = p.list(n, path)
		},
		"template": func(n *yaml.Node, path string) { d.Template = p.short(n, path) },
	})
	switch {
	case n.Kind != yaml.MappingNode:
	case seen["at"] && seen["every"]:
		p.addf(n, path, "has both at and every: want one of them")
	case !seen["at"] && !seen["every"]:
		p.addf(n, path, `is missing its times: want every, such as 30m, or at, such as "09:00"`)
	}
	return &d
}

// finish checks the parts of a route against each other, and gives the digest its channels.
func (p *parser) finish(n *yaml.Node, path string, route *Route) {
	d := route.Digest
	if route.Priority == "critical" {
		if d != nil {
			p.addf(member(n, "digest"), path+".digest", "cannot be with priority critical, which is delivered at once: leave one of them out")
		}
		if route.Throttle != nil {
			p.addf(member(n, "throttle"), path+".throttle", "cannot be with priority critical, which is delivered at once: leave one of them out")
		}
	}
	if d == nil {
		return
	}
	at, path := member(n, "digest"), path+".digest"
	for _, name := range d.Channels {
		if len(route.Channels) > 0 && !slices.Contains(route.Channels, name) {
			p.addf(at, path+".channels", "has %q, which is no channel of the route: want %s", clip(name), strings.Join(route.Channels, ", "))
		}
	}
	if d.Channels == nil && member(at, "channels") == at {
		for _, name := range route.Channels {
			if name != inbox { // the inbox is a list already
				d.Channels = append(d.Channels, name)
			}
		}
		if len(d.Channels) == 0 && len(route.Channels) > 0 {
			p.addf(at, path+".channels", "is missing: %s delivers no digests unless it is named here", inbox)
		}
	}
}

// agree checks that the digests of one category have one text, because their notifications are delivered together.
func (p *parser) agree(n *yaml.Node, path, kind string, route Route) {
	if route.Digest == nil || route.Category == "" {
		return
	}
	name := cmp.Or(route.Digest.Template, route.Category+DigestSuffix)
	if p.digests == nil {
		p.digests = map[string]string{}
	}
	of := kind + "." + route.Category
	if first, ok := p.digests[of]; ok && first != name {
		p.addf(member(n, "digest"), path+".digest.template", "is %q, and category %s has %q elsewhere: its notifications are delivered together",
			clip(name), route.Category, clip(first))
		return
	}
	p.digests[of] = name
}

// DigestSuffix follows the category, or else the template, in the name of the template of its digests.
const DigestSuffix = ".digest"

// throttle reads the throttle of a route.
func (p *parser) throttle(n *yaml.Node, path string) *contracts.Throttle {
	var t contracts.Throttle
	p.mapping(n, path, map[string]func(*yaml.Node, string){
		"limit": func(n *yaml.Node, path string) {
			limit, err := strconv.Atoi(n.Value)
			if t.Limit = limit; n.Kind != yaml.ScalarNode || err != nil || limit < 1 || limit > maxThrottle {
				p.addf(n, path, "is %q: want 1 to %d", clip(n.Value), maxThrottle)
			}
		},
		"per": func(n *yaml.Node, path string) {
			t.Per = int64(p.wait(n, path, maxThrottlePeriod) / time.Second)
		},
		"over": func(n *yaml.Node, path string) {
			t.Suppress = oneOf(p, n, path, "defer", "suppress") == "suppress"
		},
	}, "limit", "per")
	return &t
}

// times reads one time of day, or a list of them.
func (p *parser) times(n *yaml.Node, path string) []string {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	if len(items) == 0 || len(items) > maxDigestTimes {
		p.addf(n, path, "has %d times of day: want 1 to %d", len(items), maxDigestTimes)
		return nil
	}
	var times []string
	for _, item := range items {
		text := p.text(item, path)
		_, err := schedule.Clock(text)
		switch {
		case text == "":
		case err != nil || len(text) != len("15:04"):
			p.addf(item, path, `is %q: want a time of day such as "09:00"`, clip(text))
		case slices.Contains(times, text):
			p.addf(item, path, "has %q twice", text)
		default:
			times = append(times, text)
		}
	}
	return times
}

const day = 24 * time.Hour

// partOfDay reads a number of minutes that divides a day.
func (p *parser) partOfDay(n *yaml.Node, path string) int {
	every, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || every < time.Minute || every%time.Minute != 0 || day%every != 0 {
		p.addf(n, path, "is %q: want whole minutes that divide a day, such as 15m, 30m, 1h, 4h or 24h", clip(n.Value))
		return 0
	}
	return int(every / time.Minute)
}

// short reads a text of one line.
func (p *parser) short(n *yaml.Node, path string) string {
	text := p.text(n, path)
	if len(text) > contracts.MaxText {
		p.addf(n, path, "has %d bytes, at most %d", len(text), contracts.MaxText)
	}
	return text
}

// member returns a value of a mapping, or the mapping when it has none of that name.
func member(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return n
}

// MaxDelay is the longest time from the planning of a notification to its first attempt: the stream keeps notifications for 30 days,
// and further attempts need some of these days.
const MaxDelay = 21 * day

// inbox is the channel that knows which events a user has read.
const inbox = "inapp"

// Later has more channels, on which a user is notified some time after the other channels.
type Later struct {
	// After is the delay.
	After time.Duration `json:"after"`

	// Channels are the names of the channels, each once.
	Channels []string `json:"channels"`

	// Unread leaves out a user who has read the event in the inbox by then.
	Unread bool `json:"unread,omitempty"`
}

// LaterOn returns the entry of Later for a channel, the zero value for all other channels.
func (r Route) LaterOn(channel string) Later {
	for _, later := range r.Later {
		if slices.Contains(later.Channels, channel) {
			return later
		}
	}
	return Later{}
}

// Longest returns the longest delay of a channel of Later.
func (r Route) Longest() (longest time.Duration) {
	for _, later := range r.Later {
		longest = max(longest, later.After)
	}
	return longest
}

// laters reads the list of later channels.
func (p *parser) laters(n *yaml.Node, path string) []Later {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.addf(n, path, "must be a list such as [{after: 30m, unread: true, channels: [email]}]")
		return nil
	}
	var list []Later
	for i, item := range n.Content {
		var later Later
		path := fmt.Sprintf("%s[%d]", path, i)
		p.mapping(item, path, map[string]func(*yaml.Node, string){
			"after":    func(n *yaml.Node, path string) { later.After = p.wait(n, path, MaxDelay) },
			"channels": func(n *yaml.Node, path string) { later.Channels = p.list(n, path) },
			"unread":   func(n *yaml.Node, path string) { later.Unread = oneOf(p, n, path, "true", "false") == "true" },
		}, "after", "channels")
		list = append(list, later)
	}
	return list
}

// afterwards checks the later channels against the rest of the route.
func (p *parser) afterwards(n *yaml.Node, path string, route Route) {
	at, path := member(n, "later"), path+".later"
	elsewhere := slices.Concat(route.Channels, route.Fallback)
	for i, later := range route.Later {
		path := fmt.Sprintf("%s[%d]", path, i)
		p.once(at.Content[i], path+".channels", later.Channels, elsewhere)
		elsewhere = append(elsewhere, later.Channels...)
		if later.Unread && (!slices.Contains(route.Channels, inbox) || route.DigestOn(inbox) != nil) {
			p.addf(at.Content[i], path+".unread", "needs %s among the channels of the route, in no digest: nothing else knows what is read", inbox)
		}
	}
}
