package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

const (
	// batchWhole and batchHeaders are how many messages one request brings: a message may
	// have a megabyte, headers are small.
	batchWhole   = 16
	batchHeaders = 512

	// idle is how long the server keeps a consumer whose reader has died.
	idle = time.Minute

	// tries is how often in a row reading begins anew without progress. firstPause is the wait before the second of these
	// tries; it doubles for each further one.
	tries      = 5
	firstPause = 100 * time.Millisecond
)

// span is the range of messages to read.
type span struct {
	from, to    uint64 // sequences, both included
	headersOnly bool
	since       time.Time
}

// scan reads messages of the dead letter stream, oldest first, holding one batch. It makes a consumer that acknowledges
// nothing, and removes it at the end. When the consumer is lost (a server restarts), or reads from a replica that lags
// behind, scan makes it again where it was. When the latest messages are missing at the end, scan asks the leader whether
// they were removed, with one more round trip.
func (s *Store) scan(ctx context.Context, r span) iter.Seq2[*jsapi.Message, error] {
	return func(yield func(*jsapi.Message, error) bool) {
		for failures := 0; r.from <= r.to; {
			before := r.from

			done, err := s.scanOnce(ctx, &r, yield)
			if done {
				return
			}

			failures++

			if r.from > before {
				failures = 0
			}

			if errors.Is(err, jetstream.ErrStreamNotFound) {
				err = fmt.Errorf("%w: %s", ErrNoStream, s.cfg.Stream)
				failures = tries
			}

			if failures >= tries || ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
				yield(nil, fmt.Errorf("deadletter: read stream %s: %w", s.cfg.Stream, err))
				return
			}

			if failures > 0 {
				backoff.Sleep(ctx, firstPause<<(failures-1))
			}
		}
	}
}

var (
	// errBehind is returned by scanOnce when the replica that it read from lacks messages that the leader has.
	errBehind = errors.New("a replica lags behind the leader")

	// errGap is returned by scanOnce when deliveries were lost on their way.
	errGap = errors.New("deliveries were lost")
)

// scanOnce reads with one consumer. done is true when all messages have been read, or yield returned false. It moves r.from
// past the messages that it has yielded.
func (s *Store) scanOnce(ctx context.Context, r *span, yield func(*jsapi.Message, error) bool) (done bool, err error) {
	consumer, err := s.consumer(ctx, r)
	if err != nil {
		return false, err
	}

	defer s.release(ctx, consumer)

	batch := batchWhole
	if r.headersOnly {
		batch = batchHeaders
	}

	for next, pending := uint64(1), consumer.CachedInfo().NumPending; pending > 0; {
		msgs, err := consumer.FetchNoWait(batch)
		if err != nil {
			return false, fmt.Errorf("fetch: %w", err)
		}

		before := next

		for msg := range msgs.Messages() {
			meta, err := msg.Metadata()
			if err != nil || meta.Sequence.Consumer != next {
				return false, errors.Join(errGap, err)
			}

			next, pending = next+1, meta.NumPending
			if meta.Sequence.Stream > r.to || !yield(delivered(msg, meta), nil) {
				return true, nil
			}

			r.from = meta.Sequence.Stream + 1
		}

		if err := errors.Join(msgs.Error(), ctx.Err()); err != nil {
			return false, fmt.Errorf("fetch: %w", err)
		}

		if next == before { // what was pending has been removed, or the server is silent
			if pending, err = s.pending(ctx, consumer, next); err != nil {
				return false, err
			}
		}
	}

	if err := s.isAll(ctx, r); err != nil {
		return false, err
	}
	return true, nil
}

// isAll asks the leader whether no message of the span is left to be read.
func (s *Store) isAll(ctx context.Context, r *span) error {
	if r.from > r.to {
		return nil
	}

	left, err := s.get(ctx, s.cfg.Stream, jsapi.Query{NextBySubject: ">", Sequence: max(r.from, 1)})
	if err == nil && left != nil && left.Time.Before(r.since) { // not to be read; the latest may be
		left, err = s.get(ctx, s.cfg.Stream, jsapi.Query{LastBySubject: ">"})
	}

	if err == nil && left != nil && left.Sequence >= r.from && left.Sequence <= r.to && !left.Time.Before(r.since) {
		err = errBehind
	}
	return err
}

func (s *Store) consumer(ctx context.Context, r *span) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()

	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, HeadersOnly: r.headersOnly,
		InactiveThreshold: idle, MaxDeliver: 1, MemoryStorage: true, OptStartSeq: max(r.from, 1), Replicas: 1,
	}

	if !r.since.IsZero() && r.from <= 1 {
		since := r.since
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &since
	}

	consumer, err := s.js.CreateConsumer(ctx, s.cfg.Stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("create a consumer: %w", err)
	}
	return consumer, nil
}

// release removes a consumer.
func (s *Store) release(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RequestTimeout)
	defer cancel()

	_ = s.js.DeleteConsumer(ctx, s.cfg.Stream, consumer.CachedInfo().Name) //nolint:errcheck // it ends by itself
}

// pending returns how many messages are still to come, of which next is the number of the next delivery.
func (s *Store) pending(ctx context.Context, consumer jetstream.Consumer, next uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()

	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look up the consumer: %w", err)
	}

	if info.Delivered.Consumer >= next {
		return 0, errGap // it has been, and there is none after it to show it
	}
	return info.NumPending, nil
}

// pass configures how each goes through the letters.
type pass struct {
	dry    bool // changes nothing
	limit  int  // of letters, 0 for none
	report func(Outcome)
}

// each calls do for every letter that the filter selects, as the leader has it. It removes the records of replays that are
// no longer needed, where it finds them beside the letters.
func (s *Store) each(ctx context.Context, f Filter, p pass, do func(*Entry) (uint64, error)) (Result, error) {
	var result Result

	missing := make(map[uint64]bool, len(f.Sequences))
	for _, seq := range f.Sequences {
		missing[seq] = true
	}

	settle := func(o Outcome) {
		result.count(o)

		if p.report != nil {
			p.report(o)
		}
	}

	for m, err := range s.everything(ctx, f, OldestFirst, true) {
		if err != nil {
			return result, err
		}

		if s.isInternal(m.Subject) {
			if err := s.sweep(ctx, m.Subject, p.dry); err != nil {
				return result, err
			}

			continue
		}

		delete(missing, m.Sequence)

		e, err := s.selected(ctx, f, m)
		if err != nil {
			return result, err
		}

		if e == nil {
			continue
		}

		o := Outcome{Entry: *e}
		o.Sequence, o.Err = do(e)

		if o.Err != nil && !o.Skipped() && isFatal(o.Err) {
			return result, fmt.Errorf("letter %d: %w", e.Sequence, o.Err)
		}

		settle(o)

		if p.limit > 0 && result.Done+result.Failed+result.Skipped >= p.limit {
			return result, nil
		}
	}

	for seq := range missing {
		settle(Outcome{Entry: Entry{Sequence: seq}, Err: fmt.Errorf("%w: %d in stream %s", ErrNotFound, seq, s.cfg.Stream)})
	}
	return result, nil
}

// selected returns the letter of a message, nil if the filter does not select it, or it was
// removed meanwhile.
func (s *Store) selected(ctx context.Context, f Filter, m *jsapi.Message) (*Entry, error) {
	if e, err := s.glance(ctx, f, m); err != nil || e == nil || !f.selects(e) {
		return nil, err
	}
	return s.load(ctx, m.Sequence)
}
