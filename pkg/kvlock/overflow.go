package kvlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// OverflowConfig returns the stream for an Object Store bucket that Config.Overflow can name. It is made by hand rather
// than with CreateObjectStore so that AllowMsgTTL is on: each object then goes by itself, a little later than the record
// that refers to it, and so does one to which no record refers, because its claim was lost, or its key invalidated or
// computed anew. Nobody collects. nats.go and `nats object` read the bucket as any other.
//
// MaxBytes should be set: at the bound nothing is evicted, but values that need the bucket are not stored. cfg's
// NoRepublish has no meaning here.
func OverflowConfig(cfg BucketConfig) jetstream.StreamConfig {
	return cfg.stream(objectStream(cfg.Bucket), objectPrefix(cfg.Bucket)+"C.>", objectPrefix(cfg.Bucket)+"M.>")
}

// CreateOverflow makes the Object Store bucket when there is none yet; an existing one is left as it is. As CreateBucket
// it is for tests, demos and embedded servers, and tries again while a cluster is not ready. One or two round trips.
func CreateOverflow(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) error {
	return createStream(ctx, js, fmt.Sprintf("overflow bucket %q", cfg.Bucket), OverflowConfig(cfg))
}

// checkOverflow reports all that keeps a bucket from being one for values. No bucket is in order. One round trip.
func checkOverflow(ctx context.Context, js jetstream.JetStream, bucket string) error {
	if bucket == "" {
		return nil
	}
	info, err := streamInfo(ctx, js, bucket, objectStream(bucket))
	if err != nil {
		return err
	}
	s, sc := settings{what: fmt.Sprintf("overflow bucket %q", bucket)}, info.Config
	s.wantf(sc.AllowMsgTTL, "AllowMsgTTL is off: its objects would stay for ever; make the bucket from kvlock.OverflowConfig")
	s.wantf(sc.AllowDirect, "AllowDirect is off: an object could not be read in one round trip")
	s.wantf(sc.MaxMsgsPerSubject <= 0,
		"it keeps %d messages of a subject: an object has more; lift MaxMsgsPerSubject", sc.MaxMsgsPerSubject)
	s.wantKept(sc)
	return errors.Join(s.errs...)
}

func objectStream(bucket string) string { return "OBJ_" + bucket }
func objectPrefix(bucket string) string { return "$O." + bucket + "." }
