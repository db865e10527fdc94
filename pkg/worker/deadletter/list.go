package deadletter

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
)

// Order is the order of entries.
type Order int

const (
	// NewestFirst begins with the letter that was stored last.
	NewestFirst Order = iota

	// OldestFirst begins with the letter that was stored first.
	OldestFirst
)

// Get returns one entry, payload included. The error wraps [ErrNotFound] when no entry has the sequence. One round trip, and one more for
// a stranded message and for each part of a large letter.
func (s *Store) Get(ctx context.Context, sequence uint64) (Entry, error) {
	e, err := s.load(ctx, sequence)
	if err != nil {
		return Entry{}, err
	}
	if e == nil {
		return Entry{}, fmt.Errorf("%w: %d in stream %s", ErrNotFound, sequence, s.cfg.Stream)
	}
	return *e, nil
}

// load reads an entry at the leader. It returns nil when there is none.
func (s *Store) load(ctx context.Context, sequence uint64) (*Entry, error) {
	if sequence == 0 {
		return nil, nil
	}
	m, err := s.get(ctx, s.cfg.Stream, jsapi.Query{Sequence: sequence})
	if m == nil || err != nil || s.isInternal(m.Subject) {
		return nil, err
	}
	return s.open(ctx, m)
}

// List yields the entries that the filter selects and that were stored before the call. It holds at most 4,096 messages, or 8 MB, at a
// time. An error comes with an empty entry, and ends the list.
func (s *Store) List(ctx context.Context, f Filter, order Order) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for m, err := range s.everything(ctx, f, order) {
			if err == nil && s.isInternal(m.Subject) {
				continue
			}
			var e *Entry
			if err == nil {
				e, err = s.open(ctx, m)
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if e != nil && f.selects(e) && !yield(*e, nil) {
				return
			}
		}
	}
}

// everything yields the messages that a filter may select, and the store's own records.
func (s *Store) everything(ctx context.Context, f Filter, order Order) iter.Seq2[*jsapi.Message, error] {
	return func(yield func(*jsapi.Message, error) bool) {
		if err := f.Validate(); err != nil {
			yield(nil, err)
			return
		}
		if len(f.Sequences) > 0 {
			s.named(ctx, f.Sequences, order)(yield)
			return
		}
		info, err := s.info(ctx, s.cfg.Stream)
		if err != nil {
			yield(nil, err)
			return
		}
		if f.Before > 0 {
			info.State.LastSeq = min(info.State.LastSeq, f.Before-1)
		}
		source := s.scan(ctx, span{from: 1, since: f.Since, to: info.State.LastSeq})
		if order == NewestFirst {
			source = s.backwards(ctx, info.State)
		}
		for m, err := range source {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case order == NewestFirst && m.Time.Before(f.Since):
				return
			case order == OldestFirst && !f.Until.IsZero() && !m.Time.Before(f.Until):
				return
			case !yield(m, nil):
				return
			}
		}
	}
}

// named yields the present messages with the given sequences.
func (s *Store) named(ctx context.Context, sequences []uint64, order Order) iter.Seq2[*jsapi.Message, error] {
	sequences = slices.Compact(slices.Sorted(slices.Values(sequences)))
	if order == NewestFirst {
		slices.Reverse(sequences)
	}
	return func(yield func(*jsapi.Message, error) bool) {
		for _, seq := range sequences {
			m, err := s.get(ctx, s.cfg.Stream, jsapi.Query{Sequence: seq})
			if err != nil {
				yield(nil, err)
				return
			}
			if m != nil && !yield(m, nil) {
				return
			}
		}
	}
}

// held is the number of messages that backwards holds.
const held = 64

// backwards reads the newest messages first, in windows of sequences from the end. A window holds the latest messages of its range. The
// next range is larger if there were few messages, and smaller if the window had to drop some.
func (s *Store) backwards(ctx context.Context, state jetstream.StreamState) iter.Seq2[*jsapi.Message, error] {
	return func(yield func(*jsapi.Message, error) bool) {
		width := uint64(held)
		for to := state.LastSeq; to >= state.FirstSeq && to > 0; {
			from := max(state.FirstSeq, to-min(to, width)+1)
			latest, dropped, err := s.window(ctx, span{from: from, to: to})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range slices.Backward(latest) {
				if !yield(m, nil) {
					return
				}
			}
			switch {
			case dropped:
				to, width = latest[0].Sequence-1, max(width/2, held)
			case len(latest) < held/2:
				to, width = from-1, 2*width
			default:
				to = from - 1
			}
		}
	}
}

// window returns the latest messages of a span, and reports whether there were more.
func (s *Store) window(ctx context.Context, r span) (latest []*jsapi.Message, dropped bool, err error) {
	for m, err := range s.scan(ctx, r) {
		if err != nil {
			return nil, false, err
		}
		if len(latest) == held {
			latest, dropped = slices.Delete(latest, 0, 1), true
		}
		latest = append(latest, m)
	}
	return latest, dropped, nil
}

// Now returns the time of the server that stamps the letters. Compute Filter.Since and Until from it. One round trip.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	info, err := s.info(ctx, s.cfg.Stream)
	return info.TimeStamp, err
}
