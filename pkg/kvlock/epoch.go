package kvlock

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// epochOf is the epoch of the tokens of a stream.
func epochOf(info *jetstream.StreamInfo) uint64 {
	return uint64(max(0, info.Created.UnixNano()))
}

// acknowledged takes note of a revision. before is the highest revision there was when the write was sent. A stream
// that goes on never acknowledges a lower one. If it does, the bucket was deleted and made anew, and tokens get the
// epoch of the new one. One more round trip then, none otherwise.
func (f *Flight) acknowledged(ctx context.Context, before, revision uint64) {
	for revision > before {
		now := f.highest.Load()
		if revision <= now || f.highest.CompareAndSwap(now, revision) {
			return
		}
	}
	stream, err := f.js.Stream(ctx, streamName(f.cfg.Bucket))
	if err != nil {
		// The next write finds out: until then tokens are smaller than they should be, and whoever compares refuses.
		f.log.WarnContext(ctx, "kvlock: bucket was made anew, its epoch is not known yet", "error", err)
		return
	}
	f.epoch.Store(epochOf(stream.CachedInfo()))
	f.highest.Store(revision)
}
