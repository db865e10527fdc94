package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
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
		getter, err := directget.New(s.js.Conn(), s.api.Prefix)
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
		backoff.Sleep(ctx, firstPause<<failures)
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
