package contracts

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts/internal/strictjson"
)

// object is a JSON object that keeps the order of its members and the bytes of each name and value. Changes
// copy the list first, so that copies of a value that holds an object do not see each other's changes.
type object struct{ members []strictjson.Member }

// get returns the value of a member, or nil.
func (o object) get(name string) []byte {
	for _, member := range o.members {
		if member.Is(name) {
			return member.Value
		}
	}
	return nil
}

// set replaces the value of a member where it stands, or appends the member.
func (o *object) set(name string, value []byte) {
	o.members = append(make([]strictjson.Member, 0, len(o.members)+1), o.members...)
	o.put(name, value)
}

// put is set for an object whose list has no other user.
func (o *object) put(name string, value []byte) {
	for i := range o.members {
		if o.members[i].Is(name) {
			o.members[i].Value = value
			return
		}
	}
	raw := rawNames[name]
	if raw == nil {
		raw = quote(name)
	}
	o.members = append(o.members, strictjson.Member{RawName: raw, Value: value})
}

// rawNames are the names that each answer writes.
var rawNames = map[string][]byte{"providers": []byte(`"providers"`), ProviderWolt: []byte(`"wolt"`)}

func (o *object) remove(name string) {
	if o.get(name) == nil {
		return
	}
	members := make([]strictjson.Member, 0, len(o.members))
	for _, member := range o.members {
		if !member.Is(name) {
			members = append(members, member)
		}
	}
	o.members = members
}

// append writes the object without white space between its members.
func (o object) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, member := range o.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, member.RawName...)
		dst = append(dst, ':')
		dst = append(dst, member.Value...)
	}
	return append(dst, '}')
}

// appendWithResults writes a struct whose member "results", null in the envelope, must not go through encoding/json,
// which would compact and escape the unknown members of restaurants.
func appendWithResults(dst []byte, envelope any, results []Restaurant) ([]byte, error) {
	raw, err := marshal(envelope)
	if err != nil {
		return dst, err
	}
	const null = `"results":null` // not in a text, where quotation marks have a backslash
	before, after, _ := bytes.Cut(raw, []byte(null))
	list := append(slices.Grow(dst, len(raw)+512*len(results)), before...) // a restaurant has some 500 bytes
	list = append(list, `"results":[`...)
	for i, restaurant := range results {
		if i > 0 {
			list = append(list, ',')
		}
		if list, err = restaurant.AppendJSON(list); err != nil {
			return dst, fmt.Errorf("results/%d: %w", i, err)
		}
	}
	return append(append(list, ']'), after...), nil
}
