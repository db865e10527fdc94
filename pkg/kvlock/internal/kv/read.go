package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

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
// message follows any revision but 0. Revisions that begin anew belong to a bucket that was deleted and made again.
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
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	era := s.Hub.Era()
	messages, err := s.get.Last(ctx, s.Stream, subjects)
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
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	err = s.Persist(ctx, "read", key, func() error {
		entry, err = s.Leader(ctx, key)
		return err
	})
	return entry, err
}

// Leader reads a key from the stream's leader: fresher than Read, and still a hint. One round trip.
func (s *Store) Leader(ctx context.Context, key string) (Entry, error) {
	era := s.Hub.Era()
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

// All returns the data of all messages of a subject in another stream, in their order. size is the expected number of bytes; another
// length means other data. Any replica may answer, so the end may be missing. One round trip for each 4 MB.
func (s *Store) All(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	return s.get.All(ctx, stream, subject, size)
}

// AllLeader is All from the stream's leader, with a request for each message, each for at most OpTimeout.
func (s *Store) AllLeader(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	return s.get.AllLeader(ctx, stream, subject, size, s.OpTimeout)
}

// scanPage is the largest number of messages in an answer to Scan.
const scanPage = 10_000

// Scan yields the last messages of all keys that begin with prefix and a dot, and of all keys for the prefix "", including markers, in the
// order of their revisions. A key that is written meanwhile is yielded again. An error comes last, with an entry without a key.
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
				if found && !strings.HasPrefix(key, reservedPrefix) && !yield(s.entry(key, m, s.Hub.Era()), nil) {
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
	bounded, cancel := s.Bound(ctx)
	defer cancel()
	defer context.AfterFunc(s.Closing, cancel)()
	messages, more, err = s.get.Matching(bounded, s.Stream, filter, from, scanPage)
	switch {
	case s.Closing.Err() != nil:
		return nil, false, context.Cause(s.Closing)
	case err != nil && (len(messages) == 0 || ctx.Err() != nil):
		return nil, false, s.Unavailable(bounded, "list", []string{prefix}, err)
	}
	return messages, more, nil // after an error, the next page begins where this one ended
}
