package deadletter

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"
	"unique"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Index keeps the properties of letters that a survey needs, so that the next survey reads only later letters: letters do not change. When
// a letter was removed, the next survey reads all anew. The zero value is empty. An Index is safe for concurrent use, takes some 150 bytes
// for a letter, and is for one stream and one SurveyOptions.Newest.
type Index struct {
	mu    sync.Mutex
	made  time.Time // the time at which the stream was created
	next  uint64    // the sequence of the first message that was not read
	known []glimpse // at most Newest
}

// glimpse has the properties of a message that a survey needs.
type glimpse struct {
	common   unique.Handle[groupKey] // with all but the subject
	internal bool
	sequence uint64
	stored   int64 // when, in nanoseconds
	subject  string
	sure     bool // otherwise the body of the message is needed, too
}

func (s *Store) glimpseOf(m *jsapi.Message) glimpse {
	g := glimpse{internal: s.isInternal(m.Subject), sequence: m.Sequence, stored: m.Time.UnixNano()}
	if e, sure := s.classify(m); !g.internal {
		l := &e.Letter
		g.common = unique.Make(groupKey{kind: e.Kind, reason: l.Reason, signature: l.Signature, stream: l.Stream, worker: l.Worker})
		g.subject, g.sure = l.Subject, sure
	}
	return g
}

// entry returns the entry with the fields that classify sets.
func (g glimpse) entry() *Entry {
	of := g.common.Value()
	return &Entry{
		Kind: of.kind, Letter: worker.DeadLetter{
			Reason: of.reason, Signature: of.signature, Stream: of.stream, Subject: g.subject, Worker: of.worker,
		},
		Sequence: g.sequence, StoredAt: time.Unix(0, g.stored).UTC(),
	}
}

// glimpses returns the glimpses of the newest messages of now: at most n, or all for 0. One round trip, one more for messages that came
// since, and those for all messages when one was removed.
func (x *Index) glimpses(ctx context.Context, s *Store, info jetstream.StreamInfo, n uint64) ([]glimpse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.known) > 0 && x.made.Equal(info.Created) {
		whole, err := x.update(ctx, s, info.State.LastSeq, n)
		if err != nil || whole {
			return x.known, err
		}
	}
	x.known, x.made, x.next = nil, info.Created, 1
	if n > 0 && info.State.Msgs > n {
		var err error
		if x.next, err = s.newest(ctx, info.State, time.Time{}, n); err != nil {
			return nil, err
		}
	}
	return x.known, x.read(ctx, s, info.State.LastSeq)
}

// update reads the messages that came since, and reports whether none was removed: the number of messages is then that of the known ones.
func (x *Index) update(ctx context.Context, s *Store, last, n uint64) (whole bool, err error) {
	if err := x.read(ctx, s, last); err != nil {
		return false, err
	}
	from := x.known[0].sequence
	first, left, err := s.left(ctx, from, time.Time{})
	if err != nil {
		return false, err
	}
	whole = first == from && left >= uint64(len(x.known))
	if n > 0 && uint64(len(x.known)) > n {
		x.known = x.known[uint64(len(x.known))-n:]
	}
	return whole, nil
}

func (x *Index) read(ctx context.Context, s *Store, last uint64) error {
	if x.next > last {
		return nil
	}
	for m, err := range s.scan(ctx, span{from: x.next, to: last}) {
		if err != nil {
			return err
		}
		x.known, x.next = append(x.known, s.glimpseOf(m)), m.Sequence+1
	}
	x.next = last + 1
	return nil
}

// surveyed yields the messages that a survey reads, and reports whether these are all.
func (s *Store) surveyed(
	ctx context.Context, f Filter, opts SurveyOptions, info jetstream.StreamInfo,
) (source iter.Seq2[glimpse, error], all bool, err error) {
	if opts.Index != nil && len(f.Sequences) == 0 {
		known, err := opts.Index.glimpses(ctx, s, info, opts.Newest)
		all = len(known) == 0 || known[0].sequence <= info.State.FirstSeq
		return func(yield func(glimpse, error) bool) {
			for _, g := range known {
				if !yield(g, nil) {
					return
				}
			}
		}, all, err
	}
	r := span{from: 1, since: f.Since, to: info.State.LastSeq}
	if opts.Newest > 0 && info.State.Msgs > opts.Newest {
		if r.from, err = s.newest(ctx, info.State, f.Since, opts.Newest); err != nil {
			return nil, false, err
		}
	}
	messages := s.scan(ctx, r)
	if len(f.Sequences) > 0 {
		messages = s.named(ctx, f.Sequences, OldestFirst)
	}
	return func(yield func(glimpse, error) bool) {
		for m, err := range messages {
			if err != nil {
				yield(glimpse{}, err)
				return
			}
			if !yield(s.glimpseOf(m), nil) {
				return
			}
		}
	}, r.from == 1, nil
}

// newest returns a sequence from which on a stream has at most n messages, and not many fewer if it has more; 1 if it has at most n since
// a time. The server has to count for each question. It takes one or two, unless messages were removed from the middle of the stream.
func (s *Store) newest(ctx context.Context, state jetstream.StreamState, since time.Time, n uint64) (uint64, error) {
	low, high := state.FirstSeq, state.LastSeq
	first := high - min(high, n) + 1
	if !since.IsZero() {
		first = 1
	}
	for from := first; low < high; from = low + (high-low)/2 {
		_, left, err := s.left(ctx, from, since)
		switch {
		case err != nil:
			return 0, err
		case from == 1 && left <= n:
			return 1, nil
		case left > n:
			low = from + 1
		case left >= n-n/10:
			return from, nil
		default:
			high = from
		}
	}
	return high, nil
}

// left counts the messages from a sequence and a time on, and returns the sequence of the first of them. One round trip.
func (s *Store) left(ctx context.Context, from uint64, since time.Time) (first, n uint64, err error) {
	getter, err := directget.New(s.js.Conn(), s.api.Prefix)
	if err != nil {
		return 0, 0, fmt.Errorf("deadletter: %w", err)
	}
	defer getter.Close() //nolint:errcheck // the connection is closed, then
	page, _, err := s.page(ctx, getter, span{from: from, since: since, to: from})
	if err != nil {
		return 0, 0, fmt.Errorf("deadletter: count the messages of stream %s: %w", s.cfg.Stream, err)
	}
	if len(page) == 0 {
		return 0, 0, nil
	}
	return page[0].Sequence, page[0].Behind + 1, nil
}
