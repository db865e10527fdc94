package contracts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// MainEndpoint is the id, among the addresses of a channel, of the plain address in Recipient.Addresses.
const MainEndpoint = "main"

// maxEndpoints bounds the addresses of one channel beside main, and maxEndpointEvents the types of events that one of them names.
const (
	maxEndpoints      = 20
	maxEndpointEvents = 100
)

// Endpoint is one of the addresses that a user has on a channel, such as one of two browsers.
type Endpoint struct {
	// Address is where the channel reaches it. That of main is in Recipient.Addresses.
	Address string `json:"address,omitempty" jsonschema:"maxLength=2048"`
	// Disabled reports whether it gets nothing for now. Defaults to false.
	Disabled bool `json:"disabled,omitempty"`
	// Events are the types of events that it gets; one that ends in "*" is all types that begin so. Defaults to all.
	Events []string `json:"events,omitempty" jsonschema:"maxItems=100"`
	// Generation distinguishes the secret that signs its messages from earlier ones. It never gets smaller.
	Generation int64 `json:"generation,omitempty" jsonschema:"minimum=0"`
	// Name is the user's name for it; optional.
	Name string `json:"name,omitempty" jsonschema:"maxLength=1024"`
	// Previous is the generation before the last rotation.
	Previous int64 `json:"previous,omitempty" jsonschema:"minimum=0"`
	// RotatedAt is when its secret was replaced; optional.
	RotatedAt time.Time `json:"rotated_at,omitzero"`
	// Unverified reports whether nobody but the user says that the address is the user's. Defaults to false.
	Unverified bool `json:"unverified,omitempty"`
}

// Takes reports whether the endpoint gets events of the type.
func (e Endpoint) Takes(eventType string) bool {
	return len(e.Events) == 0 || slices.ContainsFunc(e.Events, func(name string) bool {
		begin, all := strings.CutSuffix(name, Anything)
		return name == eventType || all && strings.HasPrefix(eventType, begin)
	})
}

// Endpoint returns the address of a channel with an id, an empty Address if the recipient has none. The id "" stands for main.
func (r Recipient) Endpoint(channel, id string) Endpoint {
	if id != "" && id != MainEndpoint {
		return r.Endpoints[channel][id]
	}
	e := r.Endpoints[channel][MainEndpoint]
	e.Address = r.Addresses[channel]
	return e
}

// EndpointIDs returns the ids of all addresses of a channel, in order.
func (r Recipient) EndpointIDs(channel string) []string {
	ids := append(slices.Collect(maps.Keys(r.Endpoints[channel])), MainEndpoint)
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return r.Endpoint(channel, id).Address == "" })
}

// endpointID checks the id of an address: a name that is not a number.
func (c *checks) endpointID(path, id string) {
	c.name(path, id)
	c.Add(id != "" && strings.Trim(id[:1], "0123456789_-") == "", path, "must begin with a letter")
}

// endpoints checks the addresses of a channel.
func (c *checks) endpoints(path string, all map[string]Endpoint) {
	others := len(all)
	if _, ok := all[MainEndpoint]; ok { // what is known of it beside its address, which a service adds, too
		others--
	}
	c.over(path, others, maxEndpoints, "addresses beside main")
	for _, id := range slices.Sorted(maps.Keys(all)) {
		e, at := all[id], path+"/"+clip(id)
		c.endpointID(at, id)
		switch {
		case id == MainEndpoint:
			c.Add(e.Address != "", at+"/address", "must be in addresses: main is the address that is there")
		case e.Address == "":
			c.add(at+"/address", "is required")
		default:
			c.address(at+"/address", e.Address)
		}
		c.over(at+"/events", len(e.Events), maxEndpointEvents, "items")
		for i, name := range e.Events[:min(len(e.Events), maxEndpointEvents)] {
			c.id(fmt.Sprintf("%s/events/%d", at, i), name)
			c.Add(strings.Contains(strings.TrimSuffix(name, Anything), Anything), fmt.Sprintf("%s/events/%d", at, i), `has a "*" before its end`)
		}
		c.Add(e.Generation < 0, at+"/generation", "must not be negative")
		c.Add(e.Previous < 0, at+"/previous", "must not be negative")
		c.text(at+"/name", e.Name)
		c.timestamp(at+"/rotated_at", e.RotatedAt)
	}
}
