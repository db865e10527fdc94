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
	Reason      string `json:"reason,omitempty"`
	Released    bool   `json:"released,omitempty"` // failed, but nobody's fault: who waits takes over
	TTL         int64  `json:"ttl,omitempty"`      // seconds
}

func (r record) encode(value []byte) ([]byte, error) {
	meta, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("kvlock: encode record: %w", err)
	}
	if len(meta) > maxMetaBytes {
		return nil, fmt.Errorf("kvlock: record of %d bytes is over the limit of %d", len(meta), maxMetaBytes)
	}
	out := make([]byte, 0, len(meta)+1+len(value))
	out = append(out, meta...)
	out = append(out, '\n')
	return append(out, value...), nil
}

// decodeRecord splits data into its first line and the value. The value aliases data. It returns ErrVersion for what a
// newer version wrote; after any other error the data is corrupt.
func decodeRecord(data []byte) (record, []byte, error) {
	var r record
	end := bytes.IndexByte(data[:min(len(data), maxMetaBytes+1)], '\n')
	if end < 0 {
		return r, nil, fmt.Errorf("no line feed within the first %d of %d bytes", maxMetaBytes, len(data))
	}
	err := json.Unmarshal(data[:end], &r)
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
	return r, data[end+1:], nil
}

func parseState(s string) State {
	switch s {
	case "pending":
		return Pending
	case "done":
		return Done
	case "failed":
		return Failed
	default:
		return Absent
	}
}

// slot is what callers see of a record that the server stored at revision and created.
func (r record) slot(key string, value []byte, revision uint64, created time.Time) Slot {
	s := Slot{
		Key: key, State: parseState(r.State), Value: value, Reason: r.Reason, Revision: revision,
		Attempt: r.Attempt, Claim: r.Claim, Created: created, Fingerprint: r.Fingerprint, Handoff: r.Handoff,
		Owner: r.Instance, TTL: time.Duration(r.TTL) * time.Second, seen: time.Now(), writer: r.Owner, released: r.Released,
	}
	if s.State != Done {
		s.Value = nil
	}
	return s
}
