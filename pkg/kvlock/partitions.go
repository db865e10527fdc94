package kvlock

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// MaxPartitions is the greatest LockerConfig.Partitions, and that of package flight.
const MaxPartitions = kv.MaxPartitions

// PartitionsError is returned when a bucket is divided into another number of partitions than the program was told: when it binds
// to the bucket, for the next claim or acquisition of one that is bound, and for its reads within ten seconds.
type PartitionsError = kv.PartitionsError

// Grow divides a bucket into n, while it is in use: the bucket B, and others, "B-1" to "B-(n-1)", each a stream with a leader of
// its own. A key is in the one that a hash of the key names, which never changes. The others are made as copies of the
// first, with an n-th of its MaxBytes, where they are missing. Programs need the setting Partitions before: they work with the one
// bucket until it is divided, and follow by themselves. Those without it get a [PartitionsError] from then on, and those of a version
// that has no such setting ErrUnavailable. nats.go reads each bucket as any other, but no longer writes the first: its keys come in
// under "$KV.B-0.>".
//
// A claim, a lease or a result that the first bucket has of a key of another stays there to its end, and the next of that key
// goes to the other. Until none is left, the first claim or lease of a key there costs two more round trips, and a read at the
// leader one. Then Grow returns: after the longest TTL of a result, and when each lock of before was free or handed over once. It
// calls left, which may be nil, with a key that it waits for, once for each entry. When it is interrupted the next call goes on.
// A bucket is divided once.
//
// Called for a bucket that has been divided, Grow makes the others anew whose streams were lost, empty: locks in them are lost, and
// results computed again. Tokens go on growing, as the clock does. Where the clock is behind the time at which the first bucket was made or
// marked as restored, Grow returns an error. That of a lost bucket is not known any more: where the clock is behind that alone, tokens may
// be given again.
//
// While a lock comes to its own bucket, which takes milliseconds, a waiter may overtake others. A result that is computed anew
// before its end is absent to readers in that time, and is gone if the process dies in it; a purge in it may miss that value, so
// call it again.
//
// The values of a [Guard], and each [Semaphore] and [RateLimiter] stay in the first bucket: nobody divides one limit, and they
// need no setting.
//
// Grow needs the permissions to get, create and update these streams, and to read and write the first. Those of programs are in
// README.md.
func Grow(ctx context.Context, js jetstream.JetStream, bucket string, n int, left func(key string)) error {
	return kv.Grow(ctx, js, bucket, n, left)
}
