package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// uncountedKept is the time for which the record of uncounted deliveries is kept after it was last needed.
const uncountedKept = 7 * 24 * time.Hour

// place identifies a job at one of its consumers. stored distinguishes it from the job with the same sequence in a stream that was
// recreated.
type place struct {
	stream   string
	consumer string
	sequence uint64
	stored   time.Time
}

// uncountedKey returns the key of the record of a job's uncounted deliveries in the worker's bucket.
func (p place) uncountedKey() string {
	return "excused." + p.stream + "." + p.consumer + "." + strconv.FormatUint(p.sequence, 10)
}

// uncounted is the record of the deliveries of a job that used no attempt. The server counts deliveries, so an attempt is a delivery that
// is not recorded here. A job that completes at once costs nothing, a redelivered one a read, and an uncounted delivery a write. The zero
// value has none.
type uncounted struct {
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

// readUncounted returns the record of a job. One round trip, to the leader of the bucket's stream: a follower may lack a record that was
// written a moment ago, which would cost the job an attempt.
func readUncounted(ctx context.Context, bucket *kvrecord.Stream, p place) (*uncounted, error) {
	stored, err := bucket.Latest(ctx, bucket.Key(p.uncountedKey()))
	if err != nil {
		return nil, err
	}
	return decodeUncounted(stored, p), nil
}

// addUncounted adds the uncounted deliveries and the delay of n to the record of a job, which is known as last read, nil for none, unless
// the record has n's last delivery. The record is kept for a week beyond the delay. One round trip, and two more when the record is not
// the known one.
func addUncounted(ctx context.Context, bucket *kvrecord.Stream, p place, last *uncounted, n uncounted) error {
	for {
		var known uncounted
		if last != nil {
			known = *last
		}
		if known.Last >= n.Last {
			return nil
		}
		known.Uncounted, known.Last, known.Stored = known.Uncounted+n.Uncounted, n.Last, p.stored.UnixNano()
		known.Delay = n.Delay
		data, err := json.Marshal(known)
		if err != nil {
			return fmt.Errorf("uncounted deliveries: %w", err)
		}
		_, err = bucket.Put(ctx, kvrecord.Write{
			Subject: bucket.Key(p.uncountedKey()), Data: data, Over: known.record, TTL: (n.Delay + uncountedKept).Truncate(time.Second),
		})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			return err
		}
		last = decodeUncounted(conflict.Found, p)
	}
}

// decodeUncounted returns an empty record when the stored one is unreadable, or that of an older job with the same sequence.
func decodeUncounted(stored kvrecord.Record, of place) *uncounted {
	known := new(uncounted)
	if json.Unmarshal(stored.Data, known) != nil || known.Stored != of.stored.UnixNano() {
		known = new(uncounted)
	}
	known.record = stored
	return known
}
