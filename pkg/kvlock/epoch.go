package kvlock

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// epochMetadata is where a stream says that its tokens belong to a later epoch than its creation, in nanoseconds since
// 1970.
const epochMetadata = "kvlock-epoch"

// epochOf is the epoch of the tokens of a stream.
func epochOf(info *jetstream.StreamInfo) uint64 {
	created := uint64(max(0, info.Created.UnixNano()))
	marked, err := strconv.ParseUint(info.Config.Metadata[epochMetadata], 10, 64)
	if err != nil {
		return created
	}
	return max(created, marked)
}

// MarkRestored makes the tokens of a bucket greater than all earlier ones after its stream was restored from a backup.
// Such a stream was created when the one in the backup was, and goes on from its sequence: without the mark it gives
// tokens that it has given before. Call it before anybody works on the bucket again; a process that ran all the time
// learns of it with its next write. Two round trips, and the permission to update the stream.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	stream, err := js.Stream(ctx, streamName(bucket))
	if err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	info := stream.CachedInfo()
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	epoch := max(epochOf(info)+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[epochMetadata] = strconv.FormatUint(epoch, 10)
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}

// acknowledged takes note of a revision. before is the highest revision there was when the write was sent. A stream
// that goes on never acknowledges a lower one. If it does, the bucket was deleted and made anew, or restored from a
// backup, and tokens get the epoch of the new one. One more round trip then, until by, none otherwise.
func (s *store) acknowledged(ctx context.Context, before, revision uint64, by time.Time) {
	for revision > before {
		now := s.highest.Load()
		if revision <= now || s.highest.CompareAndSwap(now, revision) {
			return
		}
	}
	ctx, cancel := s.boundBy(ctx, by)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		// The next write finds out: until then tokens are smaller than they should be, and whoever compares refuses.
		s.log.WarnContext(ctx, "kvlock: bucket was made anew, its epoch is not known yet", "error", err)
		return
	}
	epoch := epochOf(stream.CachedInfo())
	if epoch == s.epoch.Load() {
		// Asked again with every write, until it is marked or the old sequence is reached.
		s.log.ErrorContext(ctx, "kvlock: bucket was restored from a backup and gives tokens again that it has given: call MarkRestored",
			"revision", revision, "before", before)
		return
	}
	s.epoch.Store(epoch)
	s.highest.Store(revision)
}
