package worker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// LimitState is what is stored of one key of a [Limit].
type LimitState = limit.State

// ListLimits returns what a bucket has of the keys of limits, so many at most, for display, and how many keys there are. A key has a
// record while something counts under it. Three round trips, and one more for each 512 keys.
func ListLimits(ctx context.Context, js jetstream.JetStream, bucket string, most int) (all []LimitState, total int, err error) {
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: time.Second, Timeout: 2 * time.Second})
	if err != nil {
		return nil, 0, err
	}
	defer records.Close()
	return limit.Survey(ctx, records.Bucket(bucket), most)
}
