package kvlock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// maxMetadataBytes bounds what a holder says of itself: names and values together.
	maxMetadataBytes = 4 << 10

	// maxLockBytes bounds the second line of a lock's record: each byte of the metadata may take six in JSON.
	maxLockBytes = 32 << 10
)

// lockRecord is what a lock's record says: who holds it, and who waits. It is never changed in place.
//
// The first line of the record is that of every record of this package: its claim is the id of the lease, its ttl how
// long others leave the lease alone that they see, its owner unique for each write. The second line is what JSON names
// here, and after it comes one line for each run of the queue.
type lockRecord struct {
	lease    string
	instance string
	ttl      time.Duration
	queue    queue

	Asked    bool              `json:"asked,omitempty"`    // somebody doubts that the holder lives: it renews at once
	Member   string            `json:"member"`             // the Locker that holds it
	Granted  bool              `json:"granted,omitempty"`  // handed to Member, which has not confirmed it yet
	Metadata map[string]string `json:"metadata,omitempty"` // what the holder says of itself
	Renewal  uint64            `json:"renewal,omitempty"`  // counts the writes by which the holder renewed it
	Renewed  int64             `json:"renewed,omitempty"`  // when the server stored the last of them, if others wrote since
	Since    int64             `json:"since"`              // when it was taken, by the holder's clock, in Unix ms
	Stolen   string            `json:"stolen,omitempty"`   // the instance that it was taken from by force
	Token    uint64            `json:"token,omitempty"`    // the revision at which it was taken; 0 for this one
}

func (l *lockRecord) encode() ([]byte, error) {
	meta, ok := l.plain()
	if !ok {
		var err error
		if meta, err = json.Marshal(l); err != nil {
			return nil, fmt.Errorf("kvlock: encode lock: %w", err)
		}
	}
	return l.queue.append(append(meta, '\n')), nil
}

// plain is the second line, unless it needs encoding/json.
func (l *lockRecord) plain() (line []byte, ok bool) {
	if len(l.Metadata) > 0 {
		return nil, false
	}
	o := newPlainWriter()
	o.trueIf("asked", l.Asked)
	o.string("member", l.Member)
	o.trueIf("granted", l.Granted)
	o.revisionIf("renewal", l.Renewal)
	o.numberIf("renewed", l.Renewed)
	o.number("since", l.Since)
	o.stringIf("stolen", l.Stolen)
	o.revisionIf("token", l.Token)
	return o.end()
}

// decodeLock reads the value of a record whose state is held.
func decodeLock(r record, value []byte) (*lockRecord, error) {
	end := bytes.IndexByte(value, '\n')
	if end < 0 || end > maxLockBytes {
		return nil, fmt.Errorf("no second line of at most %d bytes", maxLockBytes)
	}
	l := &lockRecord{lease: r.Claim, instance: r.Instance, ttl: time.Duration(r.TTL) * time.Second}
	if err := l.read(value[:end]); err != nil {
		return nil, fmt.Errorf("second line is not of a lock: %w", err)
	}
	if !isMember(l.Member) {
		return nil, errors.New("lock without a holder")
	}
	if l.ttl < time.Second {
		return nil, errors.New("lock without a ttl")
	}
	var err error
	l.queue, err = parseQueue(string(value[end+1:]))
	return l, err
}

// read reads the second line.
func (l *lockRecord) read(line []byte) error {
	first := *l
	if plain(string(line), l.set) {
		return nil
	}
	*l = first
	return json.Unmarshal(line, l) //nolint:wrapcheck // by decodeLock
}

// set sets one of the members but the metadata.
func (l *lockRecord) set(name, value string) bool {
	switch name {
	case "asked":
		return setBool(&l.Asked, value)
	case "member":
		return setString(&l.Member, value)
	case "granted":
		return setBool(&l.Granted, value)
	case "renewal":
		return setNumber(&l.Renewal, value)
	case "renewed":
		return setNumber(&l.Renewed, value)
	case "since":
		return setNumber(&l.Since, value)
	case "stolen":
		return setString(&l.Stolen, value)
	case "token":
		return setNumber(&l.Token, value)
	default:
		return false
	}
}

// sameLife says that nobody took, confirmed or renewed the lock between two records of it: only the queue differs.
func (l *lockRecord) sameLife(other *lockRecord) bool {
	if l == nil || other == nil {
		return l == other
	}
	return l.lease == other.lease && l.Granted == other.Granted && l.Renewal == other.Renewal
}

// token is the fencing token's revision of a lock that is stored at revision.
func (l *lockRecord) token(revision uint64) uint64 {
	if l.Token != 0 {
		return l.Token
	}
	return revision
}

func checkMetadata(metadata map[string]string) error {
	n := 0
	for name, value := range metadata {
		n += len(name) + len(value)
	}
	if n > maxMetadataBytes {
		return fmt.Errorf("metadata of %d bytes, the limit is %d", n, maxMetadataBytes)
	}
	return nil
}
