package kvlock

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// MaxPartitions is the greatest LockerConfig.Partitions, and that of package flight.
const MaxPartitions = kv.MaxPartitions

// PartitionsError is returned when a bucket is divided into another number of partitions than configured: when the program binds to the
// bucket, or else at the next claim or acquisition, and at reads within ten seconds.
type PartitionsError = kv.PartitionsError

// Grow divides a bucket into n, while it is in use: the bucket B, and others, "B-1" to "B-(n-1)", each a stream with a leader of
// its own. A hash of the key decides on its bucket, which never changes. Missing buckets are made as copies of the first, with an n-th of
// its MaxBytes. Programs need the setting Partitions before: they work with the one bucket until it is divided, and follow by themselves.
// Programs without it get a [PartitionsError] after the division, and programs of a version without this setting ErrUnavailable. nats.go
// reads each bucket as any other, but no longer writes the first: its keys come in under "$KV.B-0.>".
//
// If the first bucket has a claim, lease or result of a key of another bucket, it stays there to its end; the next one goes to the other
// bucket. Until none is left, the first claim or lease of a key of another bucket costs two more round trips, and a read at the leader
// one. Then Grow returns: after the longest TTL of a result, and when each earlier lock was free or handed over once. It calls left, which
// may be nil, with each key that it waits for, once for each entry. After an interruption the next call goes on. A bucket is divided once.
//
// For a divided bucket, Grow makes lost streams of the others anew, empty: locks in them are lost, and results computed again. Their
// tokens still grow, by the clock. If the clock is behind the time at which the first bucket was made or marked as restored, Grow returns
// an error. The time of a lost bucket is not known any more: if the clock is behind that time only, tokens may be given twice.
//
// While a lock moves to its own bucket, which takes milliseconds, a waiter may overtake others. While a result moves because it is
// computed anew before its end, readers find it absent. It is gone if the process dies in that time.
//
// The values of a [Guard], and each [Semaphore] and [RateLimiter] stay in the first bucket: a limit is not divided. They need no setting.
//
// Grow needs the permissions to get, create and update these streams, and to read and write the first. The permissions of programs are in
// README.md.
func Grow(ctx context.Context, js jetstream.JetStream, bucket string, n int, left func(key string)) error {
	return kv.Grow(ctx, js, bucket, n, left)
}
