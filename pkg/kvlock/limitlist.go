package kvlock

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// LimitState is the record of one key of a limit: a [Semaphore], a [RateLimiter], or a limit of a worker. Held has the number of permits
// that each process holds, Queue the processes that want some, the first in line first, and Next the time of the next start, if the limit
// has a rate. Name is the name of the limit, and Key the hash of the key.
type LimitState = limit.State

// ListLimits returns no more than most records of a bucket's limits, for display, and the number of keys. A key has a record while
// permits or starts count under it. Five round trips, and one more for each 512 keys.
func ListLimits(ctx context.Context, js jetstream.JetStream, bucket string, most int) (all []LimitState, total int, err error) {
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: time.Second, Timeout: 2 * time.Second})
	if err != nil {
		return nil, 0, err
	}
	defer records.Close()
	for _, prefix := range []string{limit.DefaultPrefix, limitPrefix} {
		found, n, err := limit.Survey(ctx, records.Bucket(bucket), prefix, max(0, most-len(all)))
		if err != nil {
			return nil, 0, err
		}
		total += n
		all = append(all, found...)
	}
	return all, total, nil
}
