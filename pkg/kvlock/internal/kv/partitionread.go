package kv

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Leader reads a key from the leader of its partition: fresher than Read, and still a hint. One round trip, and one more while entries of
// others are left in the first partition.
func (s *Store) Leader(ctx context.Context, key string) (Entry, error) {
	if err := s.refresh(ctx); err != nil {
		return Entry{}, err
	}
	defer s.followOn()
	return s.last(ctx, key)
}

func (s *Store) last(ctx context.Context, key string) (Entry, error) {
	home := s.home(key)
	if home == s || !s.IsOpen() {
		return home.leader(ctx, key)
	}
	before, err := s.leader(ctx, key)
	if err != nil || before.Revision > 0 && !before.Deleted() {
		return before, err
	}
	now, err := home.leader(ctx, key)
	return merged(before, now), err
}

// merged returns the entry that counts of a key's entries in the first and in its own partition.
func merged(before, now Entry) Entry {
	switch {
	case now.Revision > 0:
		return now
	case before.moved():
		return Entry{Key: before.Key, Seen: before.Seen, Header: before.Header}
	default:
		before.AsOf = 0 // of the first
		return before
	}
}

// Read reads keys, in their order; a key may be there twice. Any replica may answer, and may lag behind. One round trip for each MaxRead
// keys of a partition, to all partitions at once, and one more for each 64 MB of values. While entries of others are left in the first
// partition, their keys are read there too.
func (s *Store) Read(ctx context.Context, keys []string) ([]Entry, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	defer s.followOn()
	return s.readAll(ctx, keys)
}

func (s *Store) readAll(ctx context.Context, keys []string) ([]Entry, error) {
	if s.count() == 1 {
		return s.read(ctx, keys)
	}
	entries, errs, open := make([]Entry, len(keys)), make([]error, 2*s.count()), s.IsOpen()
	before := make([]Entry, len(keys)) // in the first partition
	var reads sync.WaitGroup
	read := func(from *Store, into []Entry, at []int, err *error) {
		reads.Go(func() {
			*err = from.readAt(ctx, keys, at, into)
		})
	}
	of, others := make([][]int, s.count()), []int(nil)
	for i, key := range keys {
		p := s.PartOf(key, 0)
		if of[p] = append(of[p], i); p > 0 {
			others = append(others, i)
		}
	}
	for p, at := range of {
		read(s.parts[p], entries, at, &errs[p])
	}
	if open {
		read(s, before, others, &errs[s.count()])
	}
	reads.Wait()
	if err := errors.Join(errs...); err != nil || !open {
		return entries, err
	}
	return entries, s.merge(ctx, keys, others, before, entries)
}

// merge combines the entries of keys that were read in the first partition and in their own, at the same time: a key that was moved
// meanwhile is read again.
func (s *Store) merge(ctx context.Context, keys []string, at []int, before, entries []Entry) error {
	again := make([][]int, s.count())
	for _, i := range at {
		if before[i].moved() && entries[i].Revision == 0 {
			p := s.PartOf(keys[i], 0)
			again[p] = append(again[p], i)
		}
	}
	for p, at := range again {
		if err := s.parts[p].readAt(ctx, keys, at, entries); err != nil {
			return err
		}
	}
	for _, i := range at {
		entries[i] = merged(before[i], entries[i])
	}
	return nil
}

// readAt reads the keys at some positions into the same positions.
func (s *Store) readAt(ctx context.Context, keys []string, at []int, into []Entry) error {
	if len(at) == 0 {
		return nil
	}
	some := make([]string, len(at))
	for i, from := range at {
		some[i] = keys[from]
	}
	found, err := s.read(ctx, some)
	for i, e := range found {
		into[at[i]] = e
	}
	return err
}

// each yields the entries of all partitions. If of yields them sorted by key, each yields them in that order, and each key once.
func (s *Store) each(ctx context.Context, of func(*Store) iter.Seq2[Entry, error], sorted bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := s.refresh(ctx); err != nil {
			yield(Entry{}, err)
			return
		}
		defer s.followOn()
		if sorted && s.count() > 1 {
			s.eachSorted(of, yield)
			return
		}
		for _, part := range s.Active() {
			for e, err := range of(part) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s *Store) eachSorted(of func(*Store) iter.Seq2[Entry, error], yield func(Entry, error) bool) {
	type source struct {
		next func() (Entry, error, bool)
		head Entry
	}
	var sources []*source
	advance := func(from *source) (ok bool, err error) {
		from.head, err, ok = from.next()
		return ok, err
	}
	for _, part := range s.Active() {
		next, stop := iter.Pull2(of(part))
		defer stop() //nolint:gocritic // there are few
		from := &source{next: next}
		switch ok, err := advance(from); {
		case err != nil:
			yield(Entry{}, err)
			return
		case ok:
			sources = append(sources, from)
		}
	}
	last := ""
	for len(sources) > 0 {
		at := 0 // the later entry of the same key in two partitions
		for i, from := range sources {
			if c := strings.Compare(from.head.Key, sources[at].head.Key); c < 0 || c == 0 && from.head.Revision > sources[at].head.Revision {
				at = i
			}
		}
		e := sources[at].head
		ok, err := advance(sources[at])
		if !ok {
			sources = slices.Delete(sources, at, at+1)
		}
		switch {
		case err != nil:
			yield(Entry{}, err)
			return
		case e.Key != last && !yield(e, nil):
			return
		}
		last = e.Key
	}
}
