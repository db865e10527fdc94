package kvlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/jsretry"
)

// BucketConfig says how the stream behind a bucket is made.
type BucketConfig struct {
	// Bucket is the name of the KV bucket: letters, digits, '-' and '_'. Required.
	Bucket string

	// Description is shown by tools. Defaults to none.
	Description string

	// MaxBytes bounds what the bucket may store. At the bound writes are refused; nothing is evicted.
	// Defaults to no bound but the account's.
	MaxBytes int64

	// NoRepublish leaves out the republishing of every change to "rp.<bucket>.>", by which waiters are woken.
	// Waiters then share one KV watcher in each process. Defaults to false.
	NoRepublish bool

	// Replicas is how many servers keep the bucket, 1 to 5. Defaults to 1.
	Replicas int

	// Storage is where: jetstream.FileStorage or jetstream.MemoryStorage. Defaults to file.
	Storage jetstream.StorageType
}

// maxConsumers bounds the watchers of a bucket. It is explicit because servers since 2.15 bound a stream at 1,000 when
// it is not, and a Flight needs none, or one in each process on a bucket without republishing.
const maxConsumers = 256

// StreamConfig returns the stream for a bucket that a [Flight] can work on.
//
// It is made by hand rather than with CreateKeyValue because of three settings. AllowMsgTTL lets each key have a TTL of
// its own. Limit markers (SubjectDeleteMarkerTTL) stay off: the server appends them without a check, so that one can
// wipe a renewal which it has already acknowledged. MaxMsgsPerSubject is 1, so that an expired value never uncovers an
// older one. Do not call UpdateKeyValue on such a bucket: it would rewrite these.
func StreamConfig(cfg BucketConfig) jetstream.StreamConfig {
	sc := cfg.stream(streamName(cfg.Bucket), subjectPrefix(cfg.Bucket)+">")
	sc.MaxMsgsPerSubject = 1
	sc.DenyDelete = true
	if !cfg.NoRepublish {
		sc.RePublish = &jetstream.RePublish{Source: ">", Destination: "rp." + cfg.Bucket + ".>"}
	}
	return sc
}

// stream is what the streams of records and of objects have in common.
func (cfg BucketConfig) stream(name string, subjects ...string) jetstream.StreamConfig {
	sc := jetstream.StreamConfig{
		Name:         name,
		Description:  cfg.Description,
		Subjects:     subjects,
		MaxBytes:     -1,
		MaxMsgs:      -1,
		MaxMsgSize:   -1,
		MaxConsumers: maxConsumers,
		Discard:      jetstream.DiscardNew,
		Storage:      cfg.Storage,
		Replicas:     max(cfg.Replicas, 1),
		Duplicates:   2 * time.Minute,
		AllowDirect:  true,
		AllowMsgTTL:  true,
		AllowRollup:  true,
	}
	if cfg.MaxBytes > 0 {
		sc.MaxBytes = cfg.MaxBytes
	}
	return sc
}

// CreateBucket makes the bucket when there is none yet; an existing one is left as it is. Tests, demos and embedded
// servers call it. Elsewhere an administrator makes the bucket from the same StreamConfig. One or two round trips; while a
// cluster is not ready it tries again, for up to jsretry.Wait.
func CreateBucket(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) error {
	return createStream(ctx, js, fmt.Sprintf("bucket %q", cfg.Bucket), StreamConfig(cfg))
}

func createStream(ctx context.Context, js jetstream.JetStream, what string, sc jetstream.StreamConfig) error {
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, sc)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("kvlock: create %s: %w", what, err)
	}
	return nil
}

// checkStream reports all that keeps a stream from being one that Flight is safe on.
func checkStream(bucket string, sc jetstream.StreamConfig) error {
	s := settings{what: fmt.Sprintf("bucket %q", bucket)}
	s.wantf(sc.AllowMsgTTL, "AllowMsgTTL is off: claims could not expire; make the bucket from kvlock.StreamConfig")
	s.wantf(sc.SubjectDeleteMarkerTTL == 0,
		"limit markers are on (%s): one can wipe an acknowledged renewal; turn SubjectDeleteMarkerTTL off", sc.SubjectDeleteMarkerTTL)
	s.wantf(sc.MaxMsgsPerSubject == 1,
		"history is %d: an expired value would uncover an older one; set MaxMsgsPerSubject to 1", sc.MaxMsgsPerSubject)
	s.wantf(sc.AllowRollup, "AllowRollup is off: keys could not be purged")
	s.wantf(sc.AllowDirect, "AllowDirect is off: many keys could not be read in one round trip")
	s.wantf(sc.PersistMode != jetstream.AsyncPersistMode,
		"PersistMode is async: acknowledged claims are lost when the server is killed")
	s.wantKept(sc)
	return errors.Join(s.errs...)
}

// settings collects what is wrong with those of a stream.
type settings struct {
	what string
	errs []error
}

func (s *settings) wantf(ok bool, format string, args ...any) {
	if !ok {
		s.errs = append(s.errs, fmt.Errorf("kvlock: %s: "+format, append([]any{s.what}, args...)...))
	}
}

// wantKept wants what is stored to stay until its TTL, and to be acknowledged.
func (s *settings) wantKept(sc jetstream.StreamConfig) {
	s.wantf(sc.MaxAge == 0, "MaxAge is %s: it would end claims and values before their TTL; set it to 0", sc.MaxAge)
	s.wantf(sc.Discard == jetstream.DiscardNew || sc.MaxBytes <= 0 && sc.MaxMsgs <= 0,
		"Discard is old: when it is full it would evict what is in use; set it to new")
	s.wantf(sc.Retention == jetstream.LimitsPolicy,
		"Retention is %s: messages would go when a consumer saw them; set it to limits", sc.Retention)
	s.wantf(sc.Mirror == nil, "it is a mirror: its writes go elsewhere; name the origin")
	s.wantf(!sc.NoAck && !sc.Sealed, "NoAck or Sealed is on: no write would be acknowledged")
}

func streamName(bucket string) string    { return "KV_" + bucket }
func subjectPrefix(bucket string) string { return "$KV." + bucket + "." }
