package kvlock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// recordVersion is written into every record. A reader refuses a greater one: it cannot know what it leaves out.
const recordVersion = 1

// What a caller puts into a record is bounded, so that a claim that could be begun can also be ended, whatever the
// reason: each byte may take six in JSON, and all must fit into maxMetaBytes.
const (
	maxFingerprintBytes = 1 << 10
	maxInstanceBytes    = 256
	maxJobBytes         = 128
	maxReasonBytes      = 1 << 10

	// maxMetaBytes bounds the first line of a record, so that a corrupt one costs a bounded search.
	maxMetaBytes = 16 << 10
)

// record is the first line of a KV value: JSON that says where the key stands. The value itself follows after the line
// feed, byte for byte, so that `nats kv get` shows both and nothing is encoded twice.
type record struct {
	Version     int    `json:"v"`
	State       string `json:"state"`
	Claim       string `json:"claim"`
	Owner       string `json:"owner"` // unique per claim and attempt: what settles an unknown write
	Instance    string `json:"instance,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Handoff     bool   `json:"handoff,omitempty"`
	Job         string `json:"job,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Released    bool   `json:"released,omitempty"` // failed, but nobody's fault: who waits takes over
	TTL         int64  `json:"ttl,omitempty"`      // seconds
	Value       packed `json:"value,omitzero"`     // how it is stored
	Member      string `json:"member,omitempty"`   // whose claim it is: what is probed
	Server      string `json:"server,omitempty"`   // to which the member was connected
	NotFound    bool   `json:"notFound,omitempty"` // there is nothing: an answer, not a failure
	Kept        kept   `json:"kept,omitzero"`
	Replaced    string `json:"replaced,omitempty"` // of a guarded value: the ref of the record that it was written over
}

func (r record) encode(value []byte) ([]byte, error) {
	meta, ok := r.plain()
	if !ok {
		var err error
		if meta, err = json.Marshal(r); err != nil {
			return nil, fmt.Errorf("kvlock: encode record: %w", err)
		}
	}
	if len(meta) > maxMetaBytes {
		return nil, fmt.Errorf("kvlock: record of %d bytes is over the limit of %d", len(meta), maxMetaBytes)
	}
	out := make([]byte, 0, len(meta)+1+len(value))
	out = append(out, meta...)
	out = append(out, '\n')
	return append(out, value...), nil
}

// plain is the first line, unless it needs encoding/json.
func (r record) plain() (line []byte, ok bool) {
	if r.Value != (packed{}) || r.Kept != (kept{}) {
		return nil, false
	}
	o := newPlainWriter()
	o.number("v", int64(r.Version))
	o.string("state", r.State)
	o.string("claim", r.Claim)
	o.string("owner", r.Owner)
	o.stringIf("instance", r.Instance)
	o.numberIf("attempt", int64(r.Attempt))
	o.stringIf("fingerprint", r.Fingerprint)
	o.trueIf("handoff", r.Handoff)
	o.stringIf("job", r.Job)
	o.stringIf("reason", r.Reason)
	o.trueIf("released", r.Released)
	o.numberIf("ttl", r.TTL)
	o.stringIf("member", r.Member)
	o.stringIf("server", r.Server)
	o.trueIf("notFound", r.NotFound)
	o.stringIf("replaced", r.Replaced)
	return o.end()
}

// decodeRecord splits data into its first line and the value. The value aliases data. It returns ErrVersion for what a
// newer version wrote; after any other error the data is corrupt. A packed value is not opened.
func decodeRecord(data []byte) (record, []byte, error) {
	var r record
	end := bytes.IndexByte(data[:min(len(data), maxMetaBytes+1)], '\n')
	if end < 0 {
		return r, nil, fmt.Errorf("no line feed within the first %d of %d bytes", maxMetaBytes, len(data))
	}
	err := r.read(data[:end])
	switch {
	case r.Version > recordVersion: // first: its fields may be of other types
		return r, nil, fmt.Errorf("%w: version %d, this program knows 1 to %d", ErrVersion, r.Version, recordVersion)
	case err != nil:
		return r, nil, fmt.Errorf("first line is not a record: %w", err)
	case r.Version < 1:
		return r, nil, fmt.Errorf("record version %d", r.Version)
	case parseState(r.State) == Absent:
		return r, nil, fmt.Errorf("unknown state %q", r.State)
	case r.Claim == "" || r.Owner == "":
		return r, nil, errors.New("record without claim or owner")
	case r.TTL < 0 || r.TTL > int64(maxTTL/time.Second):
		return r, nil, fmt.Errorf("ttl of %d seconds is out of range", r.TTL)
	}
	return r, data[end+1:], errors.Join(r.Value.check(), r.Kept.check())
}

// read reads the first line.
func (r *record) read(line []byte) error {
	if plain(string(line), r.set) {
		return nil
	}
	*r = record{}
	return json.Unmarshal(line, r) //nolint:wrapcheck // by decodeRecord
}

// set sets one of the members that records have in common.
func (r *record) set(name, value string) bool {
	switch name {
	case "v":
		return setNumber(&r.Version, value)
	case "state":
		return setString(&r.State, value)
	case "claim":
		return setString(&r.Claim, value)
	case "owner":
		return setString(&r.Owner, value)
	case "instance":
		return setString(&r.Instance, value)
	case "attempt":
		return setNumber(&r.Attempt, value)
	case "ttl":
		return setNumber(&r.TTL, value)
	case "member":
		return setString(&r.Member, value)
	case "server":
		return setString(&r.Server, value)
	default:
		return false
	}
}

func parseState(s string) State {
	switch s {
	case "pending":
		return Pending
	case "done":
		return Done
	case "failed":
		return Failed
	case "held":
		return held
	case "fenced":
		return fenced
	default:
		return Absent
	}
}

// kindOf is the kind of a record: held for a lock, fenced for a guarded value, and 0 for a slot.
func kindOf(r record) State {
	if state := parseState(r.State); state == held || state == fenced {
		return state
	}
	return Absent
}

// slot is what callers see of a record that the server stored at revision and created.
func (r record) slot(key string, value []byte, revision uint64, created time.Time) Slot {
	s := Slot{
		Key: key, State: parseState(r.State), Value: value, Reason: r.Reason, Revision: revision,
		Attempt: r.Attempt, Claim: r.Claim, Created: created, Fingerprint: r.Fingerprint, Handoff: r.Handoff, Job: r.Job,
		Owner: r.Instance, TTL: time.Duration(r.TTL) * time.Second, seen: time.Now(), released: r.Released, NotFound: r.NotFound,
	}
	in := &inner{member: r.Member, server: r.Server, writer: r.Owner, replaced: r.Replaced}
	s.inner = in
	if r.Kept != (kept{}) {
		kept := r.Kept
		in.kept = &kept
	}
	if r.Kept.Since > 0 {
		s.earlier = max(0, created.Sub(time.UnixMilli(r.Kept.Since)))
	}
	switch origin := r.Value.content(value); {
	case !s.hasValue():
		s.Value = nil
	case origin != nil:
		s.Value, s.sealed, in.origin = nil, true, origin
	}
	return s
}
