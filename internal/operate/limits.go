package operate

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// Limit is a key of a limit in a list.
type Limit struct {
	kvlock.LimitState

	Bucket string `json:"bucket"`
}

// Permits returns the number of permits that are held.
func (l Limit) Permits() (n int) {
	for _, held := range l.Held {
		n += held
	}
	return n
}

// Limits lists the keys of the limits in a bucket, or for "" in the buckets of workers and of other programs, and returns the number of all
// keys. It lists as many keys of each bucket as most says. Two to six round trips for each bucket.
func Limits(ctx context.Context, js jetstream.JetStream, bucket string, most int) (all []Limit, total int, err error) {
	buckets := []string{bucket}
	if bucket == "" {
		buckets = []string{contracts.BucketJobs, contracts.BucketLocks}
	}
	for _, name := range buckets {
		found, n, err := kvlock.ListLimits(ctx, js, name, most)
		if err != nil && (bucket != "" || !errors.Is(err, jetstream.ErrStreamNotFound)) {
			return nil, 0, err
		}
		total += n
		for _, state := range found {
			all = append(all, Limit{state, name})
		}
	}
	return all, total, nil
}
