// Package excuse remembers which deliveries of a message used no attempt.
//
// The server counts deliveries. An attempt is a delivery that is not excused, so only the
// excuses are stored, and only when there is one: a job that completes at once costs
// nothing here, a redelivered one costs a read.
package excuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
)

// keep is how long a record outlives the moment it was last needed.
const keep = 7 * 24 * time.Hour

// Message identifies a message of a consumer. Stored tells a message from one with the
// same sequence in a stream that was deleted and made again.
type Message struct {
	Stream   string
	Consumer string
	Sequence uint64
	Stored   time.Time
}

// Store keeps the records of one bucket.
type Store struct {
	bucket string
	js     jetstream.JetStream
	prefix string
}

// record is the wire form of a value.
type record struct {
	// Excused is the number of deliveries that used no attempt.
	Excused int `json:"excused"`

	// Last is the latest delivery that was excused, so that a repeated write counts once.
	Last int `json:"last"`

	// Stored is the time of the message, in Unix nanoseconds.
	Stored int64 `json:"stored"`
}

// New returns the store of a bucket. It makes no request.
func New(js jetstream.JetStream, bucket string) *Store {
	return &Store{bucket: bucket, js: js, prefix: api.Prefix(js)}
}

// Count returns how many deliveries of a message are excused, zero when none is known.
// One round trip, answered by the leader of the bucket's stream: a follower may not have
// seen an excuse written a moment ago, and would cost the job an attempt.
func (s *Store) Count(ctx context.Context, msg Message) (int, error) {
	rec, _, err := s.read(ctx, msg)

	return rec.Excused, err
}

// Add excuses n deliveries of a message, the latest of which is the given one. Repeating
// it changes nothing. The record outlives the delay before the next delivery by a week.
// One round trip when it excuses all deliveries so far, else two.
func (s *Store) Add(ctx context.Context, msg Message, delivery, n int, delay time.Duration) error {
	if delivery == n { // so nothing was recorded before, but by this very call
		err := s.write(ctx, msg, record{Excused: n, Last: delivery, Stored: msg.Stored.UnixNano()}, 0, delay)
		if err == nil {
			return nil
		}
	}

	for {
		rec, revision, err := s.read(ctx, msg)
		if err != nil {
			return err
		}

		if rec.Last >= delivery {
			return nil
		}

		next := record{Excused: rec.Excused + n, Last: delivery, Stored: msg.Stored.UnixNano()}
		if err = s.write(ctx, msg, next, revision, delay); err == nil {
			return nil
		}

		// A refusal may be another writer or this very write, applied before a leader
		// change: reading again tells.
		if !errors.Is(err, jetstream.ErrKeyExists) && !api.Conflict(err) {
			return err
		}

		if ctx.Err() != nil {
			return fmt.Errorf("excuse: write %s: %w", s.subject(msg), context.Cause(ctx))
		}
	}
}

func (s *Store) subject(msg Message) string {
	return "$KV." + s.bucket + ".excused." + msg.Stream + "." + msg.Consumer + "." + strconv.FormatUint(msg.Sequence, 10)
}

func (s *Store) read(ctx context.Context, of Message) (record, uint64, error) {
	msg, found, err := api.Last(ctx, s.js, "KV_"+s.bucket, s.subject(of))
	if err != nil {
		return record{}, 0, fmt.Errorf("excuse: %w", err)
	}

	if !found {
		return record{}, 0, nil
	}

	var rec record
	if json.Unmarshal(msg.Data, &rec) != nil || rec.Stored != of.Stored.UnixNano() {
		rec = record{} // unreadable, or about an older message with this sequence
	}

	return rec, msg.Sequence, nil
}

func (s *Store) write(ctx context.Context, to Message, rec record, revision uint64, delay time.Duration) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("excuse: %w", err)
	}

	msg := nats.NewMsg(s.subject(to))
	if s.prefix != jetstream.DefaultAPIPrefix {
		msg.Subject = s.prefix + msg.Subject // as nats.go does for a bucket behind a domain
	}

	msg.Data = data
	ttl := (delay + keep).Truncate(time.Second)

	_, err = s.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl))
	if err != nil {
		return fmt.Errorf("excuse: write %s: %w", msg.Subject, err)
	}

	return nil
}
