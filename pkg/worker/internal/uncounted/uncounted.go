// Package uncounted remembers which deliveries of a message used no attempt.
//
// The server counts deliveries. An attempt is a delivery that is not recorded here, and a record is written only when there is
// such a delivery: a job that completes at once costs nothing, a redelivered one costs a read.
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

// record is the wire form of a value.
type record struct {
	// Uncounted is the number of deliveries that used no attempt.
	Uncounted int `json:"excused"`

	// Last is the latest of these deliveries, so that a repeated write counts once.
	Last int `json:"last"`

	// Stored is the time of the message, in Unix nanoseconds.
	Stored int64 `json:"stored"`
}

// New returns the store of a bucket. No round trip.
func New(bucket *kvrecord.Stream) *Store { return &Store{bucket: bucket} }

// Count returns the number of deliveries of a message that used no attempt, zero when none is known. One round trip, to the leader of the
// bucket's stream: a follower may lack a record that was written a moment ago, which would cost the job an attempt.
func (s *Store) Count(ctx context.Context, msg Message) (int, error) {
	stored, err := s.bucket.Latest(ctx, s.subject(msg))
	return decode(stored, msg).Uncounted, err
}

// Add records that n deliveries of a message used no attempt, the latest of which is delivery. A repeated call changes nothing. The record
// is kept for a week beyond the delay before the next delivery. One round trip when no earlier delivery used an attempt, otherwise two.
func (s *Store) Add(ctx context.Context, msg Message, delivery, n int, delay time.Duration) error {
	var over kvrecord.Record
	if delivery > n { // earlier ones may be recorded
		var err error
		if over, err = s.bucket.Latest(ctx, s.subject(msg)); err != nil {
			return err
		}
	}
	for {
		now := decode(over, msg)
		if now.Last >= delivery {
			return nil
		}
		data, err := json.Marshal(record{Uncounted: now.Uncounted + n, Last: delivery, Stored: msg.Stored.UnixNano()})
		if err != nil {
			return fmt.Errorf("uncounted deliveries: %w", err)
		}
		_, err = s.bucket.Put(ctx, kvrecord.Write{
			Subject: s.subject(msg), Data: data, Over: over, TTL: (delay + keep).Truncate(time.Second),
		})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			return err
		}
		over = conflict.Found
	}
}

func (s *Store) subject(msg Message) string {
	return s.bucket.Key("excused." + msg.Stream + "." + msg.Consumer + "." + strconv.FormatUint(msg.Sequence, 10))
}

// decode returns the record of a message: an empty one when the stored record is unreadable, or that of an older message with the same
// sequence.
func decode(stored kvrecord.Record, of Message) (rec record) {
	if json.Unmarshal(stored.Data, &rec) != nil || rec.Stored != of.Stored.UnixNano() {
		return record{}
	}
	return rec
}
