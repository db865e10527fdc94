package kvlock

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

const (
	// maxMetadataBytes bounds the metadata of a holder: names and values together.
	maxMetadataBytes = 4 << 10

	// maxLockBytes bounds the second line of a lock's record: each byte of the metadata may take six in JSON.
	maxLockBytes = 32 << 10

	// stateHeld is the state of a lock's record.
	stateHeld = "held"
)

// record is a lock's record: the holder and the queue. It is never changed in place.
//
// Its first line is that of every record: the claim is the id of the lease, the ttl is the time for which others leave the lease alone,
// and the owner is unique for each write. The second line has the fields with a JSON name here, and after it comes one line for each run
// of the queue.
type record struct {
	Lease    string        `json:"-"`
	Instance string        `json:"-"`
	TTL      time.Duration `json:"-"`
	queue    queue
	writer   string // the owner in the first line

	Asked    bool              `json:"asked,omitempty"`    // a waiter asks for a renewal: the holder renews at once
	Member   string            `json:"member"`             // the Locker that holds it
	Granted  bool              `json:"granted,omitempty"`  // handed to Member, which has not confirmed it yet
	Metadata map[string]string `json:"metadata,omitempty"` // of the holder
	Renewal  uint64            `json:"renewal,omitempty"`  // the number of renewals by the holder
	Renewed  int64             `json:"renewed,omitempty"`  // the time at which the server stored the last renewal, if others wrote since
	Since    int64             `json:"since"`              // the time at which it was taken, by the holder's clock, in Unix ms
	Stolen   string            `json:"stolen,omitempty"`   // the instance from which it was taken by force
	Token    uint64            `json:"token,omitempty"`    // the revision at which it was taken; 0 for the revision of this record
}

// head is the first line of a lock's record.
type head struct {
	kv.Head

	TTL int64 `json:"ttl,omitempty"` // seconds
}

// encode returns the record as the bucket stores it. owner is unique for this write.
func (r *record) encode(owner string) ([]byte, error) {
	meta, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("kvlock: encode lock: %w", err)
	}
	return kv.Encode(head{
		Head: kv.Head{Version: kv.Version, State: stateHeld, Claim: r.Lease, Owner: owner, Instance: r.Instance},
		TTL:  int64(r.TTL / time.Second),
	}, r.queue.append(append(meta, '\n')))
}

// decode is the inverse of encode. last may be nil.
func decode(data []byte, last *lastQueue) (*record, error) {
	var h head
	value, err := kv.Decode(data, &h, kv.LockStates)
	if err != nil {
		return nil, err
	}
	if err := kv.CheckSeconds(h.TTL); err != nil {
		return nil, err
	}
	end := bytes.IndexByte(value, '\n')
	if end < 0 || end > maxLockBytes {
		return nil, fmt.Errorf("no second line of at most %d bytes", maxLockBytes)
	}
	r := &record{Lease: h.Claim, Instance: h.Instance, TTL: time.Duration(h.TTL) * time.Second, writer: h.Owner}
	if err := r.read(value[:end]); err != nil {
		return nil, fmt.Errorf("second line is not of a lock: %w", err)
	}
	if !kv.IsID(r.Member) {
		return nil, errors.New("lock without a holder")
	}
	if r.TTL < time.Second {
		return nil, errors.New("lock without a ttl")
	}
	r.queue, err = last.parse(string(value[end+1:]))
	return r, err
}

// read reads the second line.
func (r *record) read(line []byte) error {
	err := jsonv2.Unmarshal(line, r)
	if len(r.Metadata) == 0 { // as it is written
		r.Metadata = nil
	}
	return err
}

// sameLease reports whether two records of a lock differ in the queue only: the lock was not taken, confirmed or renewed in between.
func (r *record) sameLease(other *record) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Lease == other.Lease && r.Granted == other.Granted && r.Renewal == other.Renewal
}

// takenAt returns the revision at which the lock was taken, for a record that is stored at revision.
func (r *record) takenAt(revision uint64) uint64 {
	if r.Token != 0 {
		return r.Token
	}
	return revision
}

// state is the state of a lock at the time of one read or push. It is a hint: the lock may have changed since.
type state struct {
	name     string
	revision uint64    // the revision of the record; 0 when the server has none
	created  time.Time // the time at which the server stored it; zero when that is not known
	record   *record   // nil when the lock is free
	err      error     // the record cannot be read: it has a newer version, or is not that of a lock
	seen     time.Time // the time at which this process received it, on the monotonic clock
}

// follows reports whether s is later than last.
func (s *state) follows(last *state) bool {
	return kv.Later(s.revision, s.created, last.revision, last.created)
}

// stateOf decodes an entry. With an error, the lock is free, at the revision of the entry. last may be nil.
func stateOf(e kv.Entry, last *lastQueue) (state, error) {
	s := state{name: nameOf(e.Key), revision: e.Revision, created: e.Created, seen: e.Seen}
	if e.Deleted() || e.Purged() {
		return s, nil
	}
	var err error
	s.record, err = decode(e.Data, last)
	if err != nil {
		s.record = nil
	}
	return s, err
}

// state decodes an entry that was read. A corrupt record is reported and removed; the lock is then free.
func (l *Locker) state(ctx context.Context, e kv.Entry) state {
	s, err := stateOf(e, nil)
	switch {
	case kv.IsForeign(err):
		s.err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", e.Key, l.store.Bucket, s.revision, err)
	case err != nil:
		l.store.RemoveCorrupt(ctx, e.Key, s.revision, err)
	}
	return s
}

// view returns the view of an entry for the hub.
func view(e *kv.Entry, s state) kv.View {
	v := kv.View{Value: &s}
	if s.record != nil {
		v.Expires = kv.Expiry(s.record.TTL, e.Age, e.Seen)
	}
	return v
}

// sentRecord is a record as this process has sent it.
type sentRecord struct {
	data   []byte
	record *record
}

func (l *Locker) viewPushed(e kv.Entry) (kv.View, error) {
	if own := l.lastSent.Load(); own != nil && bytes.Equal(own.data, e.Data) { // only the write itself has its owner
		return view(&e, state{name: nameOf(e.Key), revision: e.Revision, created: e.Created, seen: e.Seen, record: own.record}), nil
	}
	s, err := stateOf(e, &l.pushedQueue)
	return view(&e, s), err
}

func (l *Locker) viewRead(ctx context.Context, e kv.Entry) kv.View {
	return view(&e, l.state(ctx, e))
}

// encoded begins an encoded part of a key, for a part of a name that is not valid in a key.
const encoded = "="

// encoding is that of keys of jobs and of ids in subjects.
var encoding = base64.RawURLEncoding.Strict()

// keyOf returns the key of the lock with that name: the name itself, if it is a valid key. Otherwise its invalid parts between dots are in
// base64url, after an equals sign.
func keyOf(name string) string {
	if kv.CheckKey(name) == nil && name[0] != encoded[0] && !strings.Contains(name, "."+encoded) {
		return name
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part != "" && (part[0] == encoded[0] || kv.CheckKey(part) != nil) {
			parts[i] = encoded + encoding.EncodeToString([]byte(part))
		}
	}
	return strings.Join(parts, ".")
}

// nameOf is the inverse of keyOf. A key that keyOf does not make is its own name.
func nameOf(key string) string {
	if !strings.Contains(key, encoded) {
		return key
	}
	parts := strings.Split(key, ".")
	for i, part := range parts {
		if text, found := strings.CutPrefix(part, encoded); found {
			if name, err := encoding.DecodeString(text); err == nil {
				parts[i] = string(name)
			}
		}
	}
	return strings.Join(parts, ".")
}

const (
	// maxRuns bounds the queue in a lock's record. A waiter without a place waits in its own process until one is free.
	maxRuns = 1000

	// maxRun bounds the places of one run, so that no sum of them overflows.
	maxRun = 1 << 20

	// maxWaiterBytes is the largest part of an instance's name that is kept for each of its runs.
	maxWaiterBytes = 64
)

// run is a series of places in the queue of a lock that belong to one member. The member decides which of its callers gets a place: it
// serves them in the order in which they came. When a caller gives up, the member's last place becomes free.
type run struct {
	member   string
	instance string
	places   int
}

// queue has the waiters of a lock, the next first. It is never changed in place: other goroutines may be reading it.
type queue []run

// before returns the other members with a place before the first place of member; all other members if member has none.
func (q queue) before(member string) (others []string) {
	for _, r := range q {
		if r.member == member {
			break
		}
		if !slices.Contains(others, r.member) {
			others = append(others, r.member)
		}
	}
	return others
}

// missing returns how many places fit would add for member, or remove if the number is negative. It is 0 as well if there is no room.
func (q queue) missing(member string, places int) int {
	n := places
	for _, r := range q {
		if r.member == member {
			n -= r.places
		}
	}
	// The member's last run can grow if nobody came after it. Otherwise the member needs another run.
	grows := len(q) > 0 && q[len(q)-1].member == member && q[len(q)-1].places < maxRun
	if n > 0 && !grows && len(q) >= maxRuns {
		return 0
	}
	return n
}

// fit gives member the number of places: it adds missing places at the end of the queue, if there is room, and removes the member's last
// places if there are too many.
func (q queue) fit(member, instance string, places int) queue {
	n := q.missing(member, places)
	switch {
	case n == 0:
		return q
	case n > 0:
		// A run grows only while no other member has queued behind it.
		add := min(n, maxRun)
		if last := len(q) - 1; last >= 0 && q[last].member == member {
			next := slices.Clone(q)
			next[last].places = min(next[last].places+add, maxRun)
			return next
		}
		return append(slices.Clip(q), run{member: member, instance: redact.Clip(instance, maxWaiterBytes), places: add})
	}
	// From the end: the member's first callers keep their turns.
	next := slices.Clone(q)
	for i := len(next) - 1; n < 0; i-- {
		if next[i].member != member {
			continue
		}
		less := min(-n, next[i].places)
		next[i].places -= less
		n += less
	}
	return next.compact()
}

// leave returns the queue without the first place of member.
func (q queue) leave(member string) queue {
	i := slices.IndexFunc(q, func(r run) bool { return r.member == member })
	if i < 0 {
		return q
	}
	next := slices.Clone(q)
	next[i].places--
	return next.compact()
}

// without returns the queue without any place of members.
func (q queue) without(members ...string) queue {
	isTheirs := func(r run) bool { return slices.Contains(members, r.member) }
	if !slices.ContainsFunc(q, isTheirs) {
		return q
	}
	return slices.DeleteFunc(slices.Clone(q), isTheirs)
}

// compact removes empty runs, in place.
func (q queue) compact() queue {
	return slices.DeleteFunc(q, func(r run) bool { return r.places == 0 })
}

// append writes a line for each run.
func (q queue) append(b []byte) []byte {
	for _, r := range q {
		b = append(b, r.member...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(r.places), 10)
		b = append(b, ' ')
		b = strconv.AppendQuote(b, r.instance)
		b = append(b, '\n')
	}
	return b
}

// lastQueue is the queue of the last pushed record, in its stored and in its decoded form. The next record of a lock mostly has the same
// queue, or lacks the first line or has one more. Then only the difference is decoded: where many wait, each of them receives every
// record. It may be nil. Its methods are safe for concurrent use.
type lastQueue struct{ of atomic.Pointer[writtenQueue] }

type writtenQueue struct {
	text  string
	queue queue
}

// parse is the inverse of append.
func (l *lastQueue) parse(text string) (queue, error) {
	if l == nil {
		return parseQueue(nil, text)
	}
	var q queue
	added := text
	if last := l.of.Load(); last != nil {
		const most = 2 // lines that may be missing at the beginning
		before := last.text
		for i := range min(len(last.queue), most+1) {
			if end, ok := strings.CutPrefix(text, before); ok {
				// A copy, so that a line does not keep the whole record in memory.
				q, added = last.queue[i:], strings.Clone(end)
				break
			}
			_, before, _ = strings.Cut(before, "\n")
		}
	}
	q, err := parseQueue(q, added)
	if err == nil {
		l.of.Store(&writtenQueue{text: text, queue: q})
	}
	return q, err
}

// parseQueue returns the runs of q, and after them the runs in text.
func parseQueue(q queue, text string) (queue, error) {
	if text == "" {
		return q, nil
	}
	q = append(make(queue, 0, len(q)+strings.Count(text, "\n")), q...)
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		member, more, _ := strings.Cut(line, " ")
		places, instance, _ := strings.Cut(more, " ")
		n, err := strconv.Atoi(places)
		name, quoteErr := strconv.Unquote(instance)
		if !ended || err != nil || quoteErr != nil || n < 1 || n > maxRun || !kv.IsID(member) || len(q) == maxRuns {
			return nil, fmt.Errorf("line %d of the queue is no place in it: %s", len(q)+1, redact.Quote(line))
		}
		q = append(q, run{member: member, instance: name, places: n})
		text = rest
	}
	return q, nil
}
