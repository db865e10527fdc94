package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
)

const (
	// batch is the largest number of messages in the answer to one request. For each request the server may go through all subjects of the
	// stream.
	batch = 4096

	// tries is the number of requests in a row without progress to a replica that lags behind, or is slow. firstPause is the wait before the
	// second of these tries; it doubles for each further try.
	tries      = 5
	firstPause = 100 * time.Millisecond
)

// span is the range of messages to read.
type span struct {
	from, to uint64 // sequences, both included
	since    time.Time
}

func (r span) batch() int { return int(min(r.to-r.from+1, batch)) }

// scan reads messages of the dead letter stream, oldest first, one batch at a time: at most 4,096 messages, and 8 MB. It makes no
// consumer: a user that may make consumers can make the server publish stored messages under any subject of the account. If the latest
// messages are missing at the end, maybe because a replica lags behind, scan asks the leader whether they were removed, with one more
// round trip.
func (s *Store) scan(ctx context.Context, r span) iter.Seq2[*jsapi.Message, error] {
	return func(yield func(*jsapi.Message, error) bool) {
		getter, err := directget.New(s.js.Conn(), s.api.Prefix, nil)
		if err == nil {
			err = errors.Join(s.read(ctx, getter, r, yield), getter.Close())
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, fmt.Errorf("deadletter: read stream %s: %w", s.cfg.Stream, err))
		}
	}
}

var (
	// errBehind is returned when the answering replica lacks messages that the leader has.
	errBehind = errors.New("a replica lags behind the leader")

	// errSlow is returned when the server answers, but did not bring a page in time.
	errSlow = errors.New("the server is busy")

	// errEnough is returned when the reader stops.
	errEnough = errors.New("enough")
)

// read yields the messages of a span, page by page.
func (s *Store) read(ctx context.Context, getter *directget.Getter, r span, yield func(*jsapi.Message, error) bool) error {
	for failures := 0; r.from <= r.to; {
		page, more, err := s.page(ctx, getter, r)
		if errors.Is(err, errSlow) && failures < tries {
			failures++
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range page {
			if m.Sequence > r.to {
				return nil
			}
			if !yield(&m, nil) {
				return errEnough
			}
			r.from, failures = m.Sequence+1, 0
		}
		if more && len(page) > 0 {
			continue
		}
		if err := s.isAll(ctx, &r); !errors.Is(err, errBehind) || failures == tries {
			return err
		}
		retry.Sleep(ctx, firstPause<<failures)
		failures++
	}
	return nil
}

// page reads the next messages of a span.
func (s *Store) page(ctx context.Context, getter *directget.Getter, r span) (page []jsapi.Message, more bool, err error) {
	once, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	if r.from <= 1 && !r.since.IsZero() {
		page, more, err = getter.Since(once, s.cfg.Stream, r.since, r.batch())
	} else {
		page, more, err = getter.From(once, s.cfg.Stream, max(r.from, 1), r.batch())
	}
	if err != nil { // the request is repeated while nothing answers
		_, gone := s.info(ctx, s.cfg.Stream)
		if gone == nil && errors.Is(err, context.DeadlineExceeded) {
			gone = errSlow
		}
		err = errors.Join(err, gone)
	}
	return page, more, err
}

// isAll asks the leader whether no message of the span is left to be read.
func (s *Store) isAll(ctx context.Context, r *span) error {
	if r.from > r.to {
		return nil
	}
	left, err := s.get(ctx, s.cfg.Stream, jsapi.Query{NextBySubject: ">", Sequence: max(r.from, 1)})
	if err == nil && left != nil && left.Time.Before(r.since) { // this message is not to be read; the latest may be
		left, err = s.get(ctx, s.cfg.Stream, jsapi.Query{LastBySubject: ">"})
	}
	if err == nil && left != nil && left.Sequence >= r.from && left.Sequence <= r.to && !left.Time.Before(r.since) {
		err = errBehind
	}
	return err
}

// surveyed returns the messages that a survey reads, and reports whether these are all.
func (s *Store) surveyed(
	ctx context.Context, f Filter, newest uint64, state jetstream.StreamState,
) (messages iter.Seq2[*jsapi.Message, error], all bool, err error) {
	if len(f.Sequences) > 0 {
		return s.named(ctx, f.Sequences, OldestFirst), true, nil
	}
	r := span{from: 1, since: f.Since, to: state.LastSeq}
	if newest > 0 && state.Msgs > newest {
		if r.from, err = s.newest(ctx, state, f.Since, newest); err != nil {
			return nil, false, err
		}
	}
	return s.scan(ctx, r), r.from == 1, nil
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
		left, err := s.left(ctx, from, since)
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

// left counts the messages from a sequence and a time on. One round trip.
func (s *Store) left(ctx context.Context, from uint64, since time.Time) (n uint64, err error) {
	getter, err := directget.New(s.js.Conn(), s.api.Prefix, nil)
	if err != nil {
		return 0, fmt.Errorf("deadletter: %w", err)
	}
	defer getter.Close()
	page, _, err := s.page(ctx, getter, span{from: from, since: since, to: from})
	if err != nil {
		return 0, fmt.Errorf("deadletter: count the messages of stream %s: %w", s.cfg.Stream, err)
	}
	if len(page) > 0 {
		n = page[0].Behind + 1
	}
	return n, nil
}
