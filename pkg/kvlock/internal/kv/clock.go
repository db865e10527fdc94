package kv

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Clock knows the server's time on this process's monotonic clock, between two bounds: a wall clock that is wrong, or is
// set while the process runs, makes no value older or younger than it is.
//
// What a server stored says that its time is that or later, so of all that is seen the highest counts. What a server says
// of its time when it is asked, as when a store is opened and with a memory every second, bounds that on both sides, and
// replaces what was known: its clock may have been set, and another one may answer. Ages are counted from the lower bound:
// nobody takes a claim for over because an answer was slow. What is left of a TTL is counted from the upper one: nothing
// is served past its end because of that.
type Clock struct {
	base  time.Time    // of this process
	least atomic.Int64 // the server's time at base, in nanoseconds since 1970, at least; 0 when unknown
	most  atomic.Int64 // the same, at most
}

func newClock() *Clock { return &Clock{base: time.Now()} }

// at returns what the server's time was at base if it was server when this process's was local.
func (c *Clock) at(local, server time.Time) int64 {
	return server.UnixNano() - int64(local.Sub(c.base))
}

// asked takes note that a server told its time, at some time between sent and answered of this process.
func (c *Clock) asked(sent, answered, server time.Time) {
	if !server.IsZero() {
		c.least.Store(c.at(answered, server))
		c.most.Store(c.at(sent, server))
	}
}

// learn takes note that the server's time was server when this process's was local, or later.
func (c *Clock) learn(local, server time.Time) {
	if server.IsZero() {
		return
	}
	at := c.at(local, server)
	raise(&c.least, at)
	if c.most.Load() != 0 {
		raise(&c.most, at)
	}
}

func raise(bound *atomic.Int64, at int64) {
	for {
		now := bound.Load()
		if at <= now || bound.CompareAndSwap(now, at) {
			return
		}
	}
}

// Since returns how long ago, at least, the server's time was then, at local, never negative.
func (c *Clock) Since(then, local time.Time) time.Duration {
	least := c.least.Load()
	if least == 0 {
		return max(0, local.Sub(then))
	}
	return max(0, time.Duration(least-c.at(local, then)))
}

// Until returns how long it takes, at least, until the server's time is then.
func (c *Clock) Until(then time.Time) time.Duration {
	now := time.Now()
	most := c.most.Load()
	if most == 0 {
		return then.Sub(now)
	}
	return time.Duration(c.at(now, then) - most)
}

// generationMetadata is where a stream says that it belongs to a later generation than its creation, in nanoseconds since
// 1970.
const generationMetadata = "kvlock-epoch"

// generationOf returns the generation of a stream: when it was created, or marked as restored.
func generationOf(info *jetstream.StreamInfo) uint64 {
	created := uint64(max(0, info.Created.UnixNano()))
	marked, err := strconv.ParseUint(info.Config.Metadata[generationMetadata], 10, 64)
	if err != nil {
		return created
	}
	return max(created, marked)
}

// Generation returns which of the streams that had this name the bucket is, in nanoseconds since 1970: it grows when the
// bucket is made anew, or marked as restored. With a revision it orders all writes of a key.
func (s *Store) Generation() uint64 { return s.generation.Load() }

// MarkRestored makes the generation of a bucket greater than all earlier ones. Two round trips.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	stream, err := js.Stream(ctx, StreamName(bucket))
	if err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	info := stream.CachedInfo()
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	generation := max(generationOf(info)+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}

// acknowledged takes note of a revision. before is the highest revision there was when the write was sent. A stream
// that goes on never acknowledges a lower one. If it does, the bucket was deleted and made anew, or restored from a
// backup, and has another generation. One more round trip then, until by, none otherwise.
func (s *Store) acknowledged(ctx context.Context, before, revision uint64, by time.Time) {
	for revision > before {
		now := s.highest.Load()
		if revision <= now || s.highest.CompareAndSwap(now, revision) {
			return
		}
	}
	ctx, cancel := s.boundBy(ctx, by)
	defer cancel()
	stream, err := s.JS.Stream(ctx, s.Stream)
	if err != nil {
		// The next write finds out: until then tokens are smaller than they should be, and the side that compares refuses.
		s.Log.WarnContext(ctx, "kvlock: bucket was made anew, its epoch is not known yet", "error", err)
		return
	}
	generation := generationOf(stream.CachedInfo())
	if generation == s.generation.Load() {
		// Asked again with every write, until it is marked or the old sequence is reached.
		s.Log.ErrorContext(ctx, "kvlock: bucket was restored from a backup and gives tokens again that it has given: call MarkRestored",
			"revision", revision, "before", before)
		return
	}
	s.generation.Store(generation)
	s.highest.Store(revision)
}

// MaxTTL is the longest TTL: far below where seconds would overflow, far above what anybody keeps.
const MaxTTL = 10 * 365 * 24 * time.Hour

// CheckTTL refuses what the server would round: it counts whole seconds and cuts fractions off.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > MaxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%s is not a TTL: want whole seconds, from 1s to %s", ttl, MaxTTL)
	}
	return nil
}

// Seconds returns a TTL as records and headers have it.
func Seconds(ttl time.Duration) int64 { return int64(ttl / time.Second) }

// MarkerTTL returns how long a marker must stay that hides a value with ttl left: a server that is killed may find the
// hidden message again when it restarts, and the marker has to be there still.
func MarkerTTL(ttl time.Duration) time.Duration { return min(2*max(ttl, time.Minute), MaxTTL) }

// Deadline returns until when an entry is there for sure that was written with ttl by a request sent at sent: its TTL
// counts from when the server stored it, which was later. The margin, a quarter of the TTL and at most a second, is for
// the server's clock running faster than this process's.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - min(time.Second, ttl/4))
}

// deadlineContext is a context that reports its end on time. The timer that ends it may be late: when a process goes on
// after a pause, its goroutines may go on before its timers do, and somebody else holds the key by then.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one

	end func() // ends the context, if its time is over
}

// DeadlineContext returns ctx with Done and Err that call end before they look at it: end ends ctx if its time is over.
func DeadlineContext(ctx context.Context, end func()) context.Context {
	return deadlineContext{ctx, end}
}

// Done returns a channel that is closed already when the context's time is over.
func (c deadlineContext) Done() <-chan struct{} {
	if c.Context.Err() == nil {
		c.end()
	}
	return c.Context.Done()
}

// Err is nil only while the context's time is not over.
func (c deadlineContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.end()
	return c.Context.Err()
}
