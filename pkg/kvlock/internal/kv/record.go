package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
)

// Version is written into every record. A reader refuses a greater version, whose fields it does not know.
const Version = 1

const (
	// MaxIDBytes bounds an id from outside. The ids of this process have 22 bytes.
	MaxIDBytes = 64

	// MaxLineBytes bounds the first line of a record, so that the search for its end in a corrupt record is bounded.
	MaxLineBytes = 16 << 10
)

// Package kvlock publishes and explains these.
var (
	ErrMismatch = errors.New("kvlock: key is in use for another input")
	ErrVersion  = errors.New("kvlock: record of a newer version")
)

// The states of the records of results, locks and guarded values.
var (
	ResultStates  = []string{"pending", "done", "failed"}
	LockStates    = []string{"held"}
	GuardedStates = []string{"fenced"}
)

// Head is the beginning of every record. The first line of an entry is JSON that begins with the Head. The data follows after the line
// feed, byte for byte, so that `nats kv get` shows both and nothing is encoded twice.
type Head struct {
	Version  int    `json:"v"`
	State    string `json:"state"`
	Claim    string `json:"claim"`
	Owner    string `json:"owner"` // unique for each writer: it settles a write whose outcome is unknown
	Instance string `json:"instance,omitempty"`
}

// Common returns the head of a record that embeds it.
func (h *Head) Common() *Head { return h }

// Encode returns first, the first line, and after it the value.
func Encode(first any, value []byte) ([]byte, error) {
	meta, err := json.Marshal(first)
	if err != nil {
		return nil, fmt.Errorf("kvlock: encode record: %w", err)
	}
	if len(meta) > MaxLineBytes {
		return nil, fmt.Errorf("kvlock: record of %d bytes is over the limit of %d", len(meta), MaxLineBytes)
	}
	out := make([]byte, 0, len(meta)+1+len(value))
	out = append(out, meta...)
	out = append(out, '\n')
	return append(out, value...), nil
}

// Decode reads the first line of data into first, and returns the value, which aliases data. It returns ErrVersion for a record of a newer
// version, and ErrMismatch for a record of another kind, whose state is not in states; after any other error the data is corrupt.
func Decode(data []byte, first interface{ Common() *Head }, states []string) (value []byte, err error) {
	end := bytes.IndexByte(data[:min(len(data), MaxLineBytes+1)], '\n')
	if end < 0 {
		return nil, fmt.Errorf("no line feed within the first %d of %d bytes", MaxLineBytes, len(data))
	}
	// Each process reads the writes of all others. The newer package takes a third of the time of encoding/json. Only encoding/json reads on
	// to the version when a field has another type.
	if jsonv2.Unmarshal(data[:end], first) != nil {
		err = json.Unmarshal(data[:end], first)
	}
	h := first.Common()
	isOf := func(kind []string) bool { return slices.Contains(kind, h.State) }
	switch {
	case h.Version > Version: // checked first: its fields may have other types
		return nil, fmt.Errorf("%w: version %d, this program knows 1 to %d", ErrVersion, h.Version, Version)
	case err != nil:
		return nil, fmt.Errorf("first line is not a record: %w", err)
	case h.Version < 1:
		return nil, fmt.Errorf("record version %d", h.Version)
	case !isOf(ResultStates) && !isOf(LockStates) && !isOf(GuardedStates):
		return nil, fmt.Errorf("unknown state %q", h.State)
	case h.Claim == "" || h.Owner == "":
		return nil, errors.New("record without claim or owner")
	case !isOf(states):
		return nil, fmt.Errorf("%w: its record is %s", ErrMismatch, h.State)
	}
	return data[end+1:], nil
}

// IsForeign reports whether err is that of a foreign record: one of a newer version, or of another kind. A foreign record stays as it is.
func IsForeign(err error) bool { return errors.Is(err, ErrVersion) || errors.Is(err, ErrMismatch) }

// CheckSeconds returns an error for a number of seconds that no writer writes.
func CheckSeconds(seconds int64) error {
	if seconds < 0 || seconds > Seconds(MaxTTL) {
		return fmt.Errorf("ttl of %d seconds is out of range", seconds)
	}
	return nil
}

// IsID reports whether s can be the id of a claim, of a lease or of a process: an id from nuid, or one like it.
func IsID(s string) bool {
	if s == "" || len(s) > MaxIDBytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}
