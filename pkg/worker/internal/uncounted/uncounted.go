// Package uncounted remembers which deliveries of a message used no attempt.
//
// The server counts deliveries. An attempt is a delivery that is not recorded here as uncounted. A job that completes at once costs
// nothing, a redelivered one a read, and a delivery that does not count a write.
package uncounted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// keep is the time for which a record is kept after it was last needed.
const keep = 7 * 24 * time.Hour

// Message identifies a message of a consumer. Stored distinguishes it from the message with the same sequence in a stream that was deleted
// and made anew.
type Message struct {
	Stream   string
	Consumer string
	Sequence uint64
	Stored   time.Time
}

// Store keeps the records in a bucket.
type Store struct{ bucket *kvrecord.Stream }

// Known is what is recorded of a message. The zero value is nothing.
type Known struct {
	// Uncounted is the number of deliveries that used no attempt.
	Uncounted int `json:"excused"`

	// Last is the latest recorded delivery, so that a repeated write counts once.
	Last int `json:"last"`

	// Stored is the time of the message, in Unix nanoseconds.
	Stored int64 `json:"stored"`

	// Delay is the time from the record to the next delivery.
	Delay time.Duration `json:"delay,omitempty"`

	record kvrecord.Record
}

// New returns the store of a bucket. No round trip.
func New(bucket *kvrecord.Stream) *Store { return &Store{bucket: bucket} }

// Read returns what is recorded of a message. One round trip, to the leader of the bucket's stream: a follower may lack a record that was
// written a moment ago, which would cost the job an attempt.
func (s *Store) Read(ctx context.Context, msg Message) (*Known, error) {
	stored, err := s.bucket.Latest(ctx, s.subject(msg))
	if err != nil {
		return nil, err
	}
	return Decode(stored, msg), nil
}

// Add adds the uncounted deliveries and the delay of n to the record of a message, which is known as last read, nil for none, unless the
// record has n's last delivery. The record is kept for a week beyond the delay. One round trip, and two more when the record is not the
// known one.
func (s *Store) Add(ctx context.Context, msg Message, last *Known, n Known) error {
	for {
		var known Known
		if last != nil {
			known = *last
		}
		if known.Last >= n.Last {
			return nil
		}
		known.Uncounted, known.Last, known.Stored = known.Uncounted+n.Uncounted, n.Last, msg.Stored.UnixNano()
		known.Delay = n.Delay
		data, err := json.Marshal(known)
		if err != nil {
			return fmt.Errorf("uncounted deliveries: %w", err)
		}
		_, err = s.bucket.Put(ctx, kvrecord.Write{
			Subject: s.subject(msg), Data: data, Over: known.record, TTL: (n.Delay + keep).Truncate(time.Second),
		})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			return err
		}
		last = Decode(conflict.Found, msg)
	}
}

func (s *Store) subject(msg Message) string {
	return s.bucket.Key(Key(msg))
}

// Key returns the key of a message's record in the bucket.
func Key(msg Message) string {
	return "excused." + msg.Stream + "." + msg.Consumer + "." + strconv.FormatUint(msg.Sequence, 10)
}

// Decode returns what a record of a message has: nothing when it is unreadable, or that of an older message with the same sequence.
func Decode(stored kvrecord.Record, of Message) *Known {
	known := new(Known)
	if json.Unmarshal(stored.Data, known) != nil || known.Stored != of.Stored.UnixNano() {
		known = new(Known)
	}
	known.record = stored
	return known
}
