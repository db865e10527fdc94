package kvlock

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// MaxKeyBytes bounds a key. Longer inputs are hashed by the caller.
const MaxKeyBytes = kv.MaxKeyBytes

// BucketConfig configures the stream behind a bucket.
type BucketConfig struct {
	// Bucket is the name of the KV bucket: letters, digits, '-' and '_'. Required.
	Bucket string

	// Description is shown by tools. Defaults to none.
	Description string

	// MaxBytes bounds the size of the bucket. A full bucket refuses writes; it evicts nothing. Defaults to the account's bound only.
	MaxBytes int64

	// Replicas is the number of servers that keep the bucket, 1 to 5. Defaults to 1.
	Replicas int

	// Storage is the storage of the bucket: jetstream.FileStorage or jetstream.MemoryStorage. Defaults to file.
	Storage jetstream.StorageType
}

// maxConsumers bounds the watchers of a bucket, which other clients make. It is explicit because servers since 2.15 otherwise set 1,000.
const maxConsumers = 256

// StreamConfig returns the stream for a bucket of locks, guarded values and results.
//
// It is made by hand rather than with CreateKeyValue because of four settings. AllowMsgTTL lets each key have a TTL of
// its own. Limit markers (SubjectDeleteMarkerTTL) stay off: the server appends them without a check, so that a marker can remove a renewal
// that the server has acknowledged. MaxMsgsPerSubject is 1, so that an expired value never uncovers an older one. AllowRollup is off, so
// that no message can remove those of other keys. nats.go's Purge of a key needs AllowRollup; where a key has one message, Delete frees as
// much. Do not call UpdateKeyValue on this bucket: it would rewrite these settings.
func StreamConfig(cfg BucketConfig) jetstream.StreamConfig {
	sc := jetstream.StreamConfig{
		Name:              kv.StreamName(cfg.Bucket),
		Description:       cfg.Description,
		Subjects:          []string{kv.SubjectPrefix(cfg.Bucket) + ">"},
		MaxBytes:          -1,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        -1,
		MaxConsumers:      maxConsumers,
		Discard:           jetstream.DiscardNew,
		Storage:           cfg.Storage,
		Replicas:          max(cfg.Replicas, 1),
		RePublish:         &jetstream.RePublish{Source: ">", Destination: "rp." + cfg.Bucket + ".>"}, // wakes waiters
		Duplicates:        2 * time.Minute,
		AllowDirect:       true,
		AllowMsgTTL:       true,
		DenyDelete:        true,
	}
	if cfg.MaxBytes > 0 {
		sc.MaxBytes = cfg.MaxBytes
	}
	return sc
}

// FirstSequence returns a FirstSeq for the stream of a new bucket, greater than all revisions of an earlier bucket of that name. Without
// it, a condition on a revision of the former bucket can hold in the new one: a holder whose renewal finds its own revision there takes
// the lock from the present holder.
//
// It is the time, in microseconds since 1970: the earlier bucket would have had to take more than a million writes each second.
func FirstSequence() uint64 { return uint64(max(1, time.Now().UnixMicro())) }

// CreateBucket makes the bucket if it does not exist; an existing one is left as it is. Tests, demos and embedded
// servers call it. Elsewhere an administrator makes the bucket from the same StreamConfig, with [FirstSequence] as its FirstSeq. One or
// two round trips; while a cluster is not ready it tries again, for up to jsretry.Wait.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) error {
	sc := StreamConfig(cfg)
	sc.FirstSeq = FirstSequence()
	return kv.CreateStream(ctx, js, "bucket", cfg.Bucket, sc)
}

// MarkRestored makes the tokens of a bucket greater than all earlier ones after its stream was restored from a backup.
// A restored stream has the creation time and the sequence of the backup: without the mark it gives tokens a second time. Call
// MarkRestored before any process works on the bucket again; a process that ran all the time learns of it with its next claim or lease,
// and loses its present ones. Two round trips, and the permission to update the stream; while a cluster is not ready it tries again, for
// up to jsretry.Wait each.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	return kv.MarkRestored(ctx, js, bucket)
}

// openRecords checks the settings of a bucket's stream, and returns a client for its records. One round trip.
func openRecords(ctx context.Context, js jetstream.JetStream, cfg kv.Config) (*kvrecord.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.OpTimeout)
	defer cancel()
	info, err := kv.StreamInfo(ctx, js, cfg.Bucket, kv.StreamName(cfg.Bucket), kv.Maker)
	if err != nil {
		return nil, err
	}
	if err := kv.CheckStream(cfg.Bucket, info.Config); err != nil {
		return nil, err
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: min(kv.SendTimeout, cfg.OpTimeout), Timeout: cfg.OpTimeout})
	if err != nil {
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", cfg.Bucket, err)
	}
	return records, nil
}
