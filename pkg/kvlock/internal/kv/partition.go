package kv

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/partition"
)

// A divided bucket has several partitions. Each is a stream, with a [Store] of its own behind the Store of the first. The callers of the
// first see one bucket. Revisions of the first partition are below the barrier, all others above it.
//
// # While entries of others are left in the first
//
// A key of another partition may have an entry in the first, from before the division. The entry is replaced there, on its revision, for
// as long as the same claim or lease lasts, and ended there. A new claim or lease ([Change.Anew]) goes to the key's own partition, in two
// conditional writes. The first write puts a mark into the first partition in place of the revision that the writer saw there, 0 for none.
// When it is acknowledged, or a mark was read, the second write creates the entry in the other partition. So no two processes can hold a
// key in two partitions:
//
//   - All writes of the key in the first, and the mark, are conditional writes of one subject of one stream: they have one order. A write
//     that was computed from a revision before the mark is refused after it, and only another mark replaces a mark.
//   - An entry comes into the other partition only after a mark, so after the last write of the key in the first.
//   - A program that knows nothing of the division writes under the former subjects, which the leader refuses. A new leader that has not
//     heard of the division takes that write, but as one more conditional write of the same subject. The write is refused after the mark;
//     before the mark, the mark fails. That holds for as long as marks stay, two minutes. A deposed leader stores nothing.
//
// A read that finds no entry in the first is not enough, even from a replica that has all writes from before the division: an entry that
// was renewed since is gone there too when its TTL has passed and the renewal has not arrived. The mark costs the first a small write for
// each key that is new in its own partition. Once nothing is left in the first, no request goes there for other keys.
//
// A leader that has not heard of the division after those two minutes is not expected: it would have a quorum for the stream and none for
// the account.

// MaxPartitions is the greatest [Config.Partitions].
const MaxPartitions = 64

const (
	// stateMoved is the state of a mark: the key's entry is in its own partition.
	stateMoved = "moved"

	// movedTTL is the TTL of a mark in place of an entry: longer than those of claims, leases and most results, see MarkerTTL. An entry with
	// a longer TTL may come back on a server that is killed after that time.
	movedTTL = 30 * 24 * time.Hour

	// moveTime is the time after the push of a mark at which the key is read again. The entry in the other partition is pushed before that.
	moveTime = 100 * time.Millisecond

	// followEvery is the time between two questions of a reader about a division that has not settled.
	followEvery = 2 * time.Second

	// followRarely is the same without a division: the bucket may be divided, or made anew, meanwhile.
	followRarely = 10 * time.Second

	// dividedKey is the key that Grow writes, so that all hubs receive it.
	dividedKey = reservedPrefix + "_partitions"
)

// PartitionsError is returned when the bucket is divided into another number of partitions than configured.
type PartitionsError struct {
	Bucket     string
	Configured int // the program's Partitions
	Partitions int // that the bucket has
}

// Error names the setting to change.
func (e *PartitionsError) Error() string {
	return fmt.Sprintf("kvlock: bucket %q is divided into %d partitions, and Partitions is %d here: set it to %d",
		e.Bucket, e.Partitions, e.Configured, e.Partitions)
}

// moved reports whether the entry is a mark.
func (e *Entry) moved() bool { return e.Header.Get(HeaderState) == stateMoved }

// openParts makes the stores of the other partitions. The partitions need not exist yet: the first request to each finds out.
func (s *Store) openParts(n int, republish *jetstream.RePublish) {
	s.parts = []*Store{s}
	for p := 1; p < n; p++ {
		bucket := partition.Name(s.Bucket, p)
		part := &Store{
			Bucket: bucket, Stream: StreamName(bucket), Instance: s.Instance, JS: s.JS, Conn: s.Conn, Log: s.Log, OpTimeout: s.OpTimeout,
			MaxMessage: s.MaxMessage, Hub: s.Hub, Clock: s.Clock, Closing: s.Closing, get: s.get, acks: s.acks, api: s.api,
			prefix: SubjectPrefix(bucket), first: s, work: s.work, remade: s.remade, closed: s.closed,
		}
		part.put = s.api.Target(part.prefix)
		part.generation.asks = make(chan struct{}, 1)
		part.generation.known.Store(known(0, time.Time{}, 0))
		s.parts = append(s.parts, part)
		s.Hub.feeds = append(s.Hub.feeds, newFeed(s.Hub, part, republishOf(republish, s.Bucket, bucket)))
	}
}

// republishOf returns the republish configuration of a partition, from that of the first.
func republishOf(first *jetstream.RePublish, bucket, part string) *jetstream.RePublish {
	if first == nil {
		return nil
	}
	other := *first
	other.Source = strings.Replace(first.Source, SubjectPrefix(bucket), SubjectPrefix(part), 1)
	other.Destination = strings.Replace(first.Destination, "rp."+bucket+".", "rp."+part+".", 1)
	return &other
}

// root returns the store of the first partition.
func (s *Store) root() *Store {
	if s.first != nil {
		return s.first
	}
	return s
}

// knownDivision is never changed.
type knownDivision struct {
	partition.Division

	generation uint64 // of the bucket
}

// learnDivision takes over the state of the division in an answer about the first. It never goes back, unless the bucket was made anew: a
// leader that has not heard of the last step may answer.
func (s *Store) learnDivision(cfg jetstream.StreamConfig, generation uint64) error {
	if s.first != nil {
		return nil
	}
	d, err := partition.Read(cfg)
	if err != nil {
		return fmt.Errorf("kvlock: bucket %q: %w", s.Bucket, err)
	}
	now := s.division.Load()
	anew := now == nil || generation > now.generation
	switch {
	case d.Partitions > 1 && d.Barrier == 0:
		return fmt.Errorf("kvlock: bucket %q is a partition of another: name that one", s.Bucket)
	case !anew && (generation < now.generation || d == now.Division || now.IsFinal() || d.Partitions == 1):
		return nil
	case d.Partitions > 1 && d.Partitions != len(s.parts) && !s.firstOnly:
		wrong := &PartitionsError{Bucket: s.Bucket, Configured: len(s.parts), Partitions: d.Partitions}
		s.wrong.Store(wrong)
		return wrong
	case !s.division.CompareAndSwap(now, &knownDivision{d, generation}):
		return s.learnDivision(cfg, generation)
	}
	s.wrong.Store(nil)
	s.isDivided.Store(d.Partitions > 1) // only then: see route
	if now != nil {
		s.Hub.divided()
	}
	return nil
}

// divided places the keys in their partitions, and makes them due.
func (h *Hub) divided() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started && h.store.Closing.Err() == nil {
		if err := h.subscribe(); err != nil {
			h.store.Log.Warn("kvlock: changes of the other partitions are read, and not pushed", "error", err)
		}
		for _, f := range h.active() {
			if h.feeds[0].mirror != nil || h.regular > busyThreshold {
				f.checks.start()
			}
		}
	}
	h.forget()
}

// feed returns the feed of a key's partition.
func (h *Hub) feed(key string) *feed { return h.store.home(key).feed }

// active returns the feeds of the existing partitions.
func (h *Hub) active() []*feed { return h.feeds[:h.store.count()] }

// count returns the number of existing partitions.
func (s *Store) count() int {
	if d := s.division.Load(); d != nil && !s.firstOnly {
		return d.Partitions
	}
	return 1
}

// Active returns the stores of the existing partitions.
func (s *Store) Active() []*Store {
	if s.parts == nil {
		return []*Store{s}
	}
	return s.parts[:s.count()]
}

// IsOpen reports whether keys of other partitions may be left in the first.
func (s *Store) IsOpen() bool {
	d := s.division.Load()
	return d != nil && d.Partitions > 1 && !d.IsFinal()
}

// home returns the partition of a key.
func (s *Store) home(key string) *Store {
	if n := s.count(); n > 1 && !strings.HasPrefix(key, reservedPrefix) {
		return s.parts[partition.OfKey(key, n)]
	}
	return s
}

// PartOf returns the number of the partition that has a revision of a key.
func (s *Store) PartOf(key string, revision uint64) int {
	if n := s.count(); n > 1 && !s.isBefore(revision) {
		return partition.OfKey(key, n)
	}
	return 0
}

// holding returns the store of the partition that has a revision of a key.
func (s *Store) holding(key string, revision uint64) *Store {
	if s.isBefore(revision) {
		return s
	}
	return s.home(key)
}

// isBefore reports whether a revision is a revision of the first partition, from before the division.
func (s *Store) isBefore(revision uint64) bool {
	d := s.division.Load()
	return d != nil && revision > 0 && revision < d.Barrier
}

// Crosses reports whether a key moved to its own partition between two of its revisions.
func (s *Store) Crosses(from, to uint64) bool { return s.isBefore(from) && !s.isBefore(to) }

// GenerationAt returns the generation of the partition that has a revision of a key.
func (s *Store) GenerationAt(key string, revision uint64) uint64 {
	return s.holding(key, revision).Generation()
}

// IsFreshAt reports whether IsFresh is true for the partition that has a revision of a key.
func (s *Store) IsFreshAt(key string, revision uint64) bool {
	return s.holding(key, revision).IsFresh()
}

// subject returns the subject under which a key comes in.
func (s *Store) subject(key string) string {
	if s.first == nil && s.isDivided.Load() {
		return s.api.Target(SubjectPrefix(entryOf(s.Bucket))) + key
	}
	return s.put + key
}

// entryOf returns the name of the first partition in the subjects under which its keys come in.
func entryOf(bucket string) string { return bucket + "-0" }

// refresh asks for the state of a division that has not settled, unless the last answer is recent. It returns an error only when the
// bucket has another number of partitions.
func (s *Store) refresh(ctx context.Context) error {
	if s.isAwaiting() && time.Since(s.generation.known.Load().asked) >= followEvery {
		_ = s.confirm(ctx) //nolint:errcheck // without an answer the known division still counts
	}
	return s.refused()
}

// isAwaiting reports whether the division of the bucket has not settled, or has not begun.
func (s *Store) isAwaiting() bool { return len(s.parts) > 1 && !s.division.Load().IsFinal() }

// followOn asks in the background for the state of a division, where refresh does not. It is called after a request was answered: on a
// slow connection the next request need not wait behind this answer.
func (s *Store) followOn() {
	if s.first == nil && !s.isAwaiting() && time.Since(s.generation.known.Load().asked) >= followRarely {
		s.askInBackground(func() {})
	}
}

// refused returns a [PartitionsError] while it is known that the bucket has another number of partitions.
func (s *Store) refused() error {
	if wrong := s.wrong.Load(); wrong != nil {
		return wrong //nolint:wrapcheck // it is of this package
	}
	return nil
}

// route returns the partition to which a change goes, and the change as it is made there. If another partition has the entry to be
// replaced, route first puts a mark in place of the entry: two more round trips.
func (s *Store) route(ctx context.Context, c Change, bound time.Duration) (*Store, Change, error) {
	c.former = !s.isDivided.Load() // read before the partition is found, because a division may begin in between
	home, before := s.home(c.Key), s.isBefore(c.Expect)
	switch open := s.IsOpen(); {
	case home == s, c.Expect > 0 && !before:
		return home, c, nil
	case before && !c.Anew:
		if open {
			return s, c, nil
		}
		return home, c, nil // no partition has the revision: the change is refused
	case open:
		if err := s.leave(ctx, c, bound); err != nil {
			return home, c, err
		}
	}
	return home, c.moved(), nil
}

// moved returns the change for another partition than that of the entry that it replaces.
func (c Change) moved() Change {
	if c.Expect > 0 {
		c.Expect, c.Held, c.Generation = 0, time.Time{}, 0
	}
	return c
}

// onto returns the change as it is made over a revision of this writer, which may be in another partition.
func (s *Store) onto(c Change, revision uint64) Change {
	if s.Crosses(c.Expect, revision) {
		c = c.moved()
	}
	c.Expect = revision
	return c
}

// leave puts a mark in place of the entry that a change replaces, or finds one.
func (s *Store) leave(ctx context.Context, c Change, bound time.Duration) error {
	ttl := MarkerTTL(0)
	if c.Expect > 0 {
		ttl = movedTTL
		if !c.isOf(s.Generation()) {
			return errRemade
		}
	}
	m := s.message(c.Key, c.Expect, nil, ttl, true)
	m.Header.Set(HeaderState, stateMoved)
	_, err := s.publish(ctx, m, min(c.timeout(), bound))
	if err == nil || jsapi.IsPermanent(err) {
		return err
	}
	if now, readErr := s.leader(ctx, c.Key); readErr == nil && now.moved() {
		return nil
	}
	return err
}
