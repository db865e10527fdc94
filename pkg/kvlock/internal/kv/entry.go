package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
)

// Headers of stored messages.
const (
	headerMarkerReason = "Nats-Marker-Reason"
	headerOperation    = "KV-Operation"
	operationPurge     = "PURGE"
	operationDelete    = "DEL"
)

// Entry is the state of a key in one read or push. It is a hint: the key may have changed since. Only a write that is conditional on
// Revision decides.
type Entry struct {
	Key      string
	Revision uint64    // the last sequence of the key in the stream; 0 when the server has none, and the rest is empty
	Created  time.Time // the time at which the server stored it, by the server's clock
	Header   nats.Header
	Data     []byte

	AsOf uint64        // the sequence of the stream at which Revision was still the last of the key; 0 when unknown
	Seen time.Time     // the time at which this process received it, on the monotonic clock
	Age  time.Duration // its age when it was seen, by the server's clock
	Era  uint64        // the era of the hub when it was asked for: an answer of an earlier era may be that of a former stream
}

// Purged reports whether the entry is a purge marker: the key is absent to readers. A marker may have data.
func (e *Entry) Purged() bool { return e.Header.Get(headerOperation) == operationPurge }

// Deleted reports whether the key is absent and the entry, if there is one, has no data.
func (e *Entry) Deleted() bool {
	return e.Revision == 0 || e.Header.Get(headerOperation) == operationDelete || e.Header.Get(headerMarkerReason) != "" ||
		e.Purged() && len(e.Data) == 0
}

// Expiry returns the time at which the server removes an entry with ttl that had the given age when it was seen, on this process's
// monotonic clock. The time is not before seen. It is zero for a ttl of 0.
func Expiry(ttl, age time.Duration, seen time.Time) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return seen.Add(ttl - min(age, ttl))
}

// Later reports whether a revision that was stored at created follows the revision last of the same key. The revision 0 of a key without a
// message follows any revision but 0. Revisions that start over belong to a bucket that was deleted and recreated.
func Later(revision uint64, created time.Time, last uint64, lastCreated time.Time) bool {
	switch {
	case revision == 0:
		return last != 0
	case revision < last:
		return created.After(lastCreated)
	default:
		return revision > last
	}
}

// MaxRead is the largest number of keys in one round trip of Read.
const MaxRead = directget.MaxSubjects

// entry returns the entry of a stored message that was asked for in an era.
func (s *Store) entry(key string, m jsapi.Message, era uint64) Entry {
	seen := time.Now()
	s.Clock.learn(seen, m.Time)
	return Entry{
		Key: key, Revision: m.Sequence, Created: m.Time, Header: m.Header, Data: m.Data, AsOf: m.AsOf,
		Seen: seen, Age: s.Clock.Since(m.Time, seen), Era: era,
	}
}

// Read reads keys, in their order; a key may be there twice. Any replica may answer, and may lag behind. One round trip for each MaxRead
// keys, and one more for each 64 MB of values.
func (s *Store) Read(ctx context.Context, keys []string) ([]Entry, error) {
	subjects := make([]string, len(keys))
	first := make(map[string]int, len(keys)) // where each key is in keys
	for i, key := range keys {
		if err := CheckKey(key); err != nil {
			return nil, err
		}
		subjects[i] = s.prefix + key
		if _, twice := first[key]; !twice {
			first[key] = i
		}
	}
	ctx, cancel := s.Bound(ctx, s.OpTimeout)
	defer cancel()
	era := s.Hub.Era.Load()
	messages, err := s.Get.Last(ctx, s.Stream, subjects)
	if err != nil {
		return nil, s.Unavailable(ctx, "read", keys, err)
	}

	entries, asOf := make([]Entry, len(keys)), uint64(0)
	for _, m := range messages {
		asOf = max(asOf, m.AsOf)
		i, asked := first[strings.TrimPrefix(m.Subject, s.prefix)]
		if asked && m.Sequence > entries[i].Revision {
			s.adopt(m.Header)
			entries[i] = s.entry(keys[i], m, era)
		}
	}
	if len(subjects) > MaxRead {
		asOf = 0 // the parts were read one after the other
	}
	seen := time.Now()
	for i, key := range keys {
		if entries[i] = entries[first[key]]; entries[i].Revision == 0 {
			entries[i] = Entry{Key: key, AsOf: asOf, Seen: seen}
		}
	}
	return entries, nil
}

// Ask is Leader, repeated until a server answers or the time of the operation is up.
func (s *Store) Ask(ctx context.Context, key string) (entry Entry, err error) {
	ctx, cancel := s.Bound(ctx, s.OpTimeout)
	defer cancel()
	err = s.Persist(ctx, "read", key, func() error {
		entry, err = s.Leader(ctx, key)
		return err
	})
	return entry, err
}

// Leader reads a key from the stream's leader: fresher than Read, and still a hint. One round trip.
func (s *Store) Leader(ctx context.Context, key string) (Entry, error) {
	era := s.Hub.Era.Load()
	m, found, err := s.api.Get(ctx, s.Stream, jsapi.Query{LastBySubject: s.prefix + key})
	if err != nil {
		return Entry{}, err
	}
	if !found {
		return Entry{Key: key, Seen: time.Now()}, nil
	}
	s.adopt(m.Header)
	return s.entry(key, m, era), nil
}

// Unavailable explains why the server gave no answer: the caller's context, the store's end, or the server.
func (s *Store) Unavailable(ctx context.Context, op string, keys []string, err error) error {
	if cause := context.Cause(s.closed); cause != nil {
		return cause
	}
	subject := fmt.Sprintf("%d keys", len(keys))
	if len(keys) == 1 {
		subject = fmt.Sprintf("%q", keys[0])
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the client's error says no more then
		return fmt.Errorf("kvlock: %s %s: %w", op, subject, context.Cause(ctx))
	}
	return fmt.Errorf("kvlock: %s %s in bucket %q: %w: %w", op, subject, s.Bucket, ErrUnavailable, jsapi.Unanswered(s.Conn, err))
}

// scanPage is the largest number of messages in an answer to Scan.
const scanPage = 10_000

// Scan yields the last messages of all keys that begin with prefix and a dot, and of all keys for the prefix "", including markers, in the
// order of their revisions. A key that is written in the meantime is yielded again. An error comes last, with an entry without a key.
//
// Any replica may answer. One round trip for each 10,000 messages, or 8 MB. With a prefix, each costs the server some 0.2 seconds for a
// million keys, because it counts the messages that follow.
func (s *Store) Scan(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for next, more := uint64(1), true; more; {
			var messages []jsapi.Message
			var err error
			if messages, more, err = s.page(ctx, prefix, next); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, m := range messages {
				next = m.Sequence + 1
				key, found := strings.CutPrefix(m.Subject, s.prefix)
				if found && !strings.HasPrefix(key, reservedPrefix) && !yield(s.entry(key, m, s.Hub.Era.Load()), nil) {
					return
				}
			}
		}
	}
}

// page reads a page of Scan, and reports whether another follows.
func (s *Store) page(ctx context.Context, prefix string, from uint64) (messages []jsapi.Message, more bool, err error) {
	filter := ">" // without counting
	if prefix != "" {
		if err := CheckKey(prefix); err != nil {
			return nil, false, err
		}
		filter = s.prefix + prefix + ".>"
	}
	bounded, cancel := s.Bound(ctx, s.OpTimeout)
	defer cancel()
	defer context.AfterFunc(s.Closing, cancel)()
	messages, more, err = s.Get.Matching(bounded, s.Stream, filter, from, scanPage)
	switch {
	case s.Closing.Err() != nil:
		return nil, false, context.Cause(s.Closing)
	case err != nil && (len(messages) == 0 || ctx.Err() != nil):
		return nil, false, s.Unavailable(bounded, "list", []string{prefix}, err)
	}
	return messages, more, nil // after an error, the next page begins where this one ended
}

// MaxKeyBytes bounds a key.
const MaxKeyBytes = 1024

// reservedPrefix begins the keys that are not for callers (ADR-8).
const reservedPrefix = "_kv"

// CheckKey returns an error for a text that is not a KV key of NATS (ADR-8), in particular for the wildcards '*' and '>'.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %d bytes, the limit is %d: hash it", ErrInvalidKey, len(key), MaxKeyBytes)
	case strings.HasPrefix(key, reservedPrefix):
		return fmt.Errorf("%w %q: keys that begin with %q are reserved", ErrInvalidKey, key, reservedPrefix)
	case key[0] == '.' || key[len(key)-1] == '.' || strings.Contains(key, ".."):
		return fmt.Errorf("%w %q: a dot separates two parts, none of which is empty", ErrInvalidKey, key)
	}
	for i := range len(key) {
		if c := key[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-/_=.", c) >= 0) {
			return fmt.Errorf("%w %q: byte %d is %q, only letters, digits and -/_=. are allowed: encode or hash it", ErrInvalidKey, key, i, c)
		}
	}
	return nil
}

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
	if seconds < 0 || seconds > int64(MaxTTL/time.Second) {
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

// Clock bounds the server's time from below and above, on this process's monotonic clock. A wall clock that is wrong, or is set while the
// process runs, does not change the age of a value.
//
// The time at which a server stored a message is a lower bound; the highest of all counts. The time in a server's answer
// (when a store is opened and, with a memory, every second) is a bound on both sides. It replaces the former bounds, because the server's
// clock may have been set, and another server may answer. Ages are counted from the lower bound, so that a slow answer does not make a
// claim look expired. The rest of a TTL is counted from the upper bound, so that no value is served past its end.
type Clock struct {
	base  time.Time    // of this process
	least atomic.Int64 // the lower bound of the server's time at base, in nanoseconds since 1970; 0 when unknown
	most  atomic.Int64 // the same, at most
}

func newClock() *Clock { return &Clock{base: time.Now()} }

// at returns the server's time at base, when the server's time was server at this process's time local.
func (c *Clock) at(local, server time.Time) int64 {
	return server.UnixNano() - int64(local.Sub(c.base))
}

// asked applies an answer with the server's time, read between this process's times sent and answered.
func (c *Clock) asked(sent, answered, server time.Time) {
	if !server.IsZero() {
		c.least.Store(c.at(answered, server))
		c.most.Store(c.at(sent, server))
	}
}

// learn records that the server's time was server or later at this process's time local.
func (c *Clock) learn(local, server time.Time) {
	if server.IsZero() {
		return
	}
	at := c.at(local, server)
	raise(&c.least, at)
	if c.most.Load() != 0 {
		raise(&c.most, at)
	}
}

func raise(bound *atomic.Int64, at int64) {
	for {
		now := bound.Load()
		if at <= now || bound.CompareAndSwap(now, at) {
			return
		}
	}
}

// Since returns the least time that passed between the server's time then and this process's time local, never negative.
func (c *Clock) Since(then, local time.Time) time.Duration {
	least := c.least.Load()
	if least == 0 {
		return max(0, local.Sub(then))
	}
	return max(0, time.Duration(least-c.at(local, then)))
}

// Now returns the lower bound of the server's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if least := c.least.Load(); least != 0 {
		return time.Unix(0, least).Add(now.Sub(c.base))
	}
	return now
}

// Until returns the least time until the server's time is then.
func (c *Clock) Until(then time.Time) time.Duration {
	now := time.Now()
	most := c.most.Load()
	if most == 0 {
		return then.Sub(now)
	}
	return time.Duration(c.at(now, then) - most)
}

// MaxTTL is the longest TTL: far below an overflow of seconds, far above the TTLs in use.
const MaxTTL = 10 * 365 * 24 * time.Hour

// CheckTTL returns an error for a TTL that the server would round: the server counts whole seconds and drops fractions.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > MaxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%s is not a TTL: want whole seconds, from 1s to %s", ttl, MaxTTL)
	}
	return nil
}

// CheckNamedTTL is CheckTTL for a TTL that has a name in the error.
func CheckNamedTTL(name string, ttl time.Duration) error {
	if err := CheckTTL(ttl); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// MarkerTTL returns the TTL of a marker that hides a value with ttl left. A server that was killed may restore the hidden message when it
// restarts, and the marker has to outlive that message.
func MarkerTTL(ttl time.Duration) time.Duration { return min(2*max(ttl, time.Minute), MaxTTL) }

// Deadline returns the time until which an entry certainly exists that was written with ttl by a request sent at sent: its TTL counts from
// the time at which the server stored it, which was later. The margin, a quarter of the TTL and at most a second, is for a server's clock
// that runs faster than this process's.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - min(time.Second, ttl/4))
}

// deadlineContext is a context that reports its end on time. The timer that ends it may be late: after a pause of the
// process its goroutines may run before its timers do, and another process may hold the key by then.
type deadlineContext struct {
	context.Context

	end func() // ends the context, if its time is over
}

// DeadlineContext returns ctx with a Done and an Err that first call end. end has to end ctx if its time is over.
func DeadlineContext(ctx context.Context, end func()) context.Context {
	return deadlineContext{ctx, end}
}

// Done returns a channel that is closed already when the context's time is over.
func (c deadlineContext) Done() <-chan struct{} {
	if c.Context.Err() == nil {
		c.end()
	}
	return c.Context.Done()
}

// Err returns nil only until the context's time is over.
func (c deadlineContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.end()
	return c.Context.Err()
}
