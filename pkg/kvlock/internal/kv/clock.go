package kv

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// headerGeneration has the generation of the bucket, as the writer of the message knew it, in base 36. Name and value are short, because
// the server copies the header of an entry six times for each read: 25 bytes more cost a tenth of the server's CPU.
const headerGeneration = "Kv-Gen"

const generationBase = 36

// generationMetadata is the metadata of a stream that was marked as restored: its generation, in nanoseconds since 1970.
const generationMetadata = "kvlock-epoch"

// Confirmed is the time for which the generation of the bucket counts as known after a question to the server.
const Confirmed = time.Second

// generation is the generation of a bucket as a store knows it. It grows when the bucket is created again, or marked as restored: a
// generation and a revision order all writes of a key. A process learns a greater generation from the header of an entry that another
// process wrote, from the stream's leader, and from the leader check of a hub with many keys. The leader is asked before a revision
// becomes a token, unless it answered within [Confirmed].
type generation struct {
	known atomic.Pointer[knownGeneration]
	raise sync.Mutex  // held while known changes
	again atomic.Bool // a question because of a push is under way

	asks    chan struct{} // has an element while the server is asked, and guards the fields below
	failed  time.Time     // the time at which the last question failed
	failure error         // and why
}

// knownGeneration is never changed.
type knownGeneration struct {
	number     uint64
	header     []string  // the generation as messages have it
	asked      time.Time // the time of the last question to the server; zero when it has to be asked again
	reconnects uint64    // of the connection, then
}

func known(number uint64, asked time.Time, reconnects uint64) *knownGeneration {
	header := []string{strconv.FormatUint(number, generationBase)}
	return &knownGeneration{number: number, header: header, asked: asked, reconnects: reconnects}
}

// generationOf returns the generation of a stream: the time at which it was created, or marked as restored.
func generationOf(info *jetstream.StreamInfo) uint64 {
	created := uint64(max(0, info.Created.UnixNano()))
	marked, err := strconv.ParseUint(info.Config.Metadata[generationMetadata], 10, 64)
	if err != nil {
		return created
	}
	return max(created, marked)
}

// maxAhead bounds the time by which a generation in an entry may be ahead of the server's time, so that a wrong one is soon exceeded.
const maxAhead = time.Minute

// IsFresh reports whether the server was asked for the generation within [Confirmed], on the present connection. Then a revision may
// become a token.
func (s *Store) IsFresh() bool {
	return s.isSteady() && time.Since(s.generation.known.Load().asked) < Confirmed
}

// isSteady reports whether nothing has hinted at another generation since the server was asked.
func (s *Store) isSteady() bool {
	k := s.generation.known.Load()
	return k != nil && !k.asked.IsZero() && k.reconnects == s.Conn.Stats().Reconnects
}

// Generation returns the generation of the bucket, in nanoseconds since 1970; 0 for a store that was not opened.
func (s *Store) Generation() uint64 {
	if k := s.generation.known.Load(); k != nil {
		return k.number
	}
	return 0
}

// confirm asks the stream's leader for the generation, unless it has answered within [Confirmed]. Callers that wait for the
// same question share its answer. One round trip.
func (s *Store) confirm(ctx context.Context) error {
	g, came := &s.generation, time.Now()
	g.asks <- struct{}{}
	defer func() { <-g.asks }()
	if s.IsFresh() {
		return nil
	}
	if g.failed.After(came) {
		return g.failure
	}
	ctx, cancel := context.WithTimeout(ctx, SendTimeout)
	defer cancel()
	sent, reconnects := time.Now(), s.Conn.Stats().Reconnects
	stream, err := s.JS.Stream(ctx, s.Stream)
	if err != nil {
		g.failed = time.Now()
		// The error is not wrapped: a missing stream, say, does not decide about a write.
		g.failure = fmt.Errorf("kvlock: ask for the generation of bucket %q: %w: %s", s.Bucket, ErrUnavailable, err.Error())
		return g.failure
	}
	s.answered(stream.CachedInfo(), sent, reconnects)
	return nil
}

// answered records the generation in the server's answer to a request of the time sent.
func (s *Store) answered(info *jetstream.StreamInfo, sent time.Time, reconnects uint64) {
	s.setGeneration(func(now *knownGeneration) *knownGeneration {
		return known(max(generationOf(info), now.number), sent, reconnects)
	})
}

// invalidate makes the next write ask for the generation.
func (s *Store) invalidate() {
	s.setGeneration(func(now *knownGeneration) *knownGeneration { return known(now.number, time.Time{}, 0) })
}

// setGeneration replaces the known generation, and calls [Config.Remade] when it has grown.
func (s *Store) setGeneration(next func(now *knownGeneration) *knownGeneration) {
	g := &s.generation
	g.raise.Lock()
	defer g.raise.Unlock()
	now := g.known.Load()
	then := next(now)
	g.known.Store(then)
	if then.number > now.number && s.remade != nil {
		s.work.Go(s.remade)
	}
}

// later returns the generation in the header of an entry if it is greater than the known generation, and 0 otherwise.
func (s *Store) later(h nats.Header) uint64 {
	values, k := h[headerGeneration], s.generation.known.Load()
	if len(values) != 1 || values[0] == k.header[0] {
		return 0
	}
	number, err := strconv.ParseUint(values[0], generationBase, 64)
	if err != nil || number <= k.number || number > uint64(max(0, s.Clock.Now().Add(maxAhead).UnixNano())) {
		return 0
	}
	return number
}

// adopt takes over a greater generation from an entry that was read.
func (s *Store) adopt(h nats.Header) {
	if number := s.later(h); number > 0 {
		s.setGeneration(func(now *knownGeneration) *knownGeneration {
			return known(max(number, now.number), time.Time{}, 0)
		})
	}
}

// suspect asks the server, in the background, when a push has a greater generation. The push itself proves nothing: anybody could have
// published it. One question is under way at a time.
func (s *Store) suspect(h nats.Header) {
	if s.later(h) == 0 || s.Closing.Err() != nil || !s.generation.again.CompareAndSwap(false, true) {
		return
	}
	s.work.Go(func() {
		defer s.generation.again.Store(false)
		s.invalidate()
		if err := s.confirm(s.Closing); err != nil {
			s.Log.Debug("kvlock: the generation of the bucket is asked for by the next write", "error", err)
		}
	})
}

// isRemade reports whether the bucket has a later generation than then. One round trip.
func (s *Store) isRemade(ctx context.Context, then uint64) bool {
	s.invalidate()
	return s.confirm(ctx) == nil && s.Generation() > then
}

// acknowledged records the revision of an acknowledged write. before is the highest known revision at the time the write was sent. A
// stream never acknowledges a lower revision, unless the bucket was deleted and created again, or restored from a backup. Then it has
// another generation, and acknowledged makes one more round trip, until by; otherwise none.
func (s *Store) acknowledged(ctx context.Context, before, revision uint64, by time.Time) {
	for revision > before {
		now := s.highest.Load()
		if revision <= now || s.highest.CompareAndSwap(now, revision) {
			return
		}
	}
	ctx, cancel := s.boundBy(ctx, by)
	defer cancel()
	then := s.Generation()
	s.invalidate()
	switch err := s.confirm(ctx); {
	case err != nil:
		s.Log.WarnContext(ctx, "kvlock: bucket was made anew, its generation is not known yet", "error", err)
	case s.Generation() == then:
		// Each write asks again, until the bucket is marked or the old sequence is reached.
		s.Log.ErrorContext(ctx, "kvlock: bucket was restored from a backup and gives tokens again that it has given: call MarkRestored",
			"revision", revision, "before", before)
	default:
		s.highest.Store(revision)
	}
}

// Clock bounds the server's time from below and above, on this process's monotonic clock. A wall clock that is wrong, or is set while the
// process runs, does not change the age of a value.
//
// The time at which a server stored a message is a lower bound; the highest of all counts. The time in a server's answer
// (when a store is opened and, with a memory, every second) is a bound on both sides. It replaces the former bounds, because the server's
// clock may have been set, and another server may answer. Ages are counted from the lower bound, so that a slow answer does not make a
// claim look expired. The rest of a TTL is counted from the upper bound, so that no value is served past its end.
type Clock struct {
	base  time.Time    // of this process
	least atomic.Int64 // the lower bound of the server's time at base, in nanoseconds since 1970; 0 when unknown
	most  atomic.Int64 // the same, at most
}

func newClock() *Clock { return &Clock{base: time.Now()} }

// at returns the server's time at base, when the server's time was server at this process's time local.
func (c *Clock) at(local, server time.Time) int64 {
	return server.UnixNano() - int64(local.Sub(c.base))
}

// asked applies an answer with the server's time, read between this process's times sent and answered.
func (c *Clock) asked(sent, answered, server time.Time) {
	if !server.IsZero() {
		c.least.Store(c.at(answered, server))
		c.most.Store(c.at(sent, server))
	}
}

// learn records that the server's time was server or later at this process's time local.
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

// Since returns the least time that passed between the server's time then and this process's time local, never negative.
func (c *Clock) Since(then, local time.Time) time.Duration {
	least := c.least.Load()
	if least == 0 {
		return max(0, local.Sub(then))
	}
	return max(0, time.Duration(least-c.at(local, then)))
}

// Now returns the lower bound of the server's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if least := c.least.Load(); least != 0 {
		return time.Unix(0, least).Add(now.Sub(c.base))
	}
	return now
}

// Until returns the least time until the server's time is then.
func (c *Clock) Until(then time.Time) time.Duration {
	now := time.Now()
	most := c.most.Load()
	if most == 0 {
		return then.Sub(now)
	}
	return time.Duration(c.at(now, then) - most)
}

// MaxTTL is the longest TTL: far below an overflow of seconds, far above the TTLs in use.
const MaxTTL = 10 * 365 * 24 * time.Hour

// CheckTTL returns an error for a TTL that the server would round: the server counts whole seconds and drops fractions.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > MaxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%s is not a TTL: want whole seconds, from 1s to %s", ttl, MaxTTL)
	}
	return nil
}

// CheckNamedTTL is CheckTTL for a TTL that has a name in the error.
func CheckNamedTTL(name string, ttl time.Duration) error {
	if err := CheckTTL(ttl); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Seconds returns a TTL in the unit of records and headers.
func Seconds(ttl time.Duration) int64 { return int64(ttl / time.Second) }

// MarkerTTL returns the TTL of a marker that hides a value with ttl left. A server that was killed may restore the hidden message when it
// restarts, and the marker has to outlive that message.
func MarkerTTL(ttl time.Duration) time.Duration { return min(2*max(ttl, time.Minute), MaxTTL) }

// Deadline returns the time until which an entry certainly exists that was written with ttl by a request sent at sent: its TTL counts from
// the time at which the server stored it, which was later. The margin, a quarter of the TTL and at most a second, is for a server's clock
// that runs faster than this process's.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - min(time.Second, ttl/4))
}

// deadlineContext is a context that reports its end on time. The timer that ends it may be late: after a pause of the
// process its goroutines may run before its timers do, and another process may hold the key by then.
type deadlineContext struct {
	context.Context

	end func() // ends the context, if its time is over
}

// DeadlineContext returns ctx with a Done and an Err that first call end. end has to end ctx if its time is over.
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

// Err returns nil only until the context's time is over.
func (c deadlineContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.end()
	return c.Context.Err()
}
