package rules

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxDelay is how long after its planning a row may have to wait: the stream keeps rows for 30 days, and they need some of those to
// be tried again.
const MaxDelay = 21 * day

// inbox is the channel that knows what its user has read.
const inbox = "inapp"

// Later says that a user is notified on more channels, some time after the others.
type Later struct {
	// After is how much later.
	After time.Duration `json:"after"`

	// Channels are the names of the channels, each once.
	Channels []string `json:"channels"`

	// Unread spares a user who has read the event in the inbox by then.
	Unread bool `json:"unread,omitempty"`
}

// LaterOn is what is said of a channel of Later, the zero value for all other channels.
func (r Route) LaterOn(channel string) Later {
	for _, later := range r.Later {
		if slices.Contains(later.Channels, channel) {
			return later
		}
	}
	return Later{}
}

// Longest is how much later than on the others a user is notified on the last channel.
func (r Route) Longest() (longest time.Duration) {
	for _, later := range r.Later {
		longest = max(longest, later.After)
	}
	return longest
}

// laters reads a list of what is delivered later.
func (p *parser) laters(n *yaml.Node, path string) []Later {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.addf(n, path, "must be a list such as [{after: 30m, unread: true, channels: [email]}]")
		return nil
	}
	var list []Later
	for i, item := range n.Content {
		var later Later
		path := fmt.Sprintf("%s[%d]", path, i)
		seen := p.mapping(item, path, map[string]func(*yaml.Node, string){
			"after":    func(n *yaml.Node, path string) { later.After = p.wait(n, path, MaxDelay) },
			"channels": func(n *yaml.Node, path string) { later.Channels = p.list(n, path) },
			"unread":   func(n *yaml.Node, path string) { later.Unread = oneOf(p, n, path, "true", "false") == "true" },
		})
		for _, name := range []string{"after", "channels"} {
			if item.Kind == yaml.MappingNode && !seen[name] {
				p.addf(item, path+"."+name, "is missing")
			}
		}
		list = append(list, later)
	}
	return list
}

// afterwards checks what is delivered later against the rest of the route.
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
