package contracts

import "github.com/expediter-io/expediter/internal/strictjson"

// object is a JSON object that keeps the order of its members and the bytes of each name and value. A change copies the list of members
// first, so that copies of an object do not see each other's changes.
type object struct {
	raw     []byte              // the first members, as append writes them; nil for none
	bare    bool                // raw has neither "providers" nor ProviderWolt
	members []strictjson.Member // the others
}

// split moves the members of raw to the list of members.
func (o *object) split() {
	if o.raw != nil {
		o.members, o.raw = append(strictjson.Members(o.raw), o.members...), nil
	}
}

// get returns the value of a member, or nil.
func (o object) get(name string) []byte {
	for _, member := range o.members {
		if member.Is(name) {
			return member.Value
		}
	}
	var value [1][]byte
	if o.raw != nil && !(o.bare && (name == "providers" || name == ProviderWolt)) {
		_ = strictjson.Pick(value[:], o.raw, name) // it was checked
	}
	return value[0]
}

// set replaces the value of a member where it stands, or appends the member.
func (o *object) set(name string, value []byte) {
	o.members = append(make([]strictjson.Member, 0, len(o.members)+1), o.members...)
	o.put(name, value)
}

// put is set for an object whose list is not shared with a copy.
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
	if o.raw != nil {
		dst = append(dst, o.raw[1:len(o.raw)-1]...)
	}
	for i, member := range o.members {
		if i > 0 || o.raw != nil {
			dst = append(dst, ',')
		}
		dst = append(dst, member.RawName...)
		dst = append(dst, ':')
		dst = append(dst, member.Value...)
	}
	return append(dst, '}')
}
