package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
)

// Bounds of the wait between two tries of a write whose outcome is unknown. A leader change takes seconds, a lost reply
// costs one try.
const (
	minSettleWait = time.Millisecond
	maxSettleWait = 250 * time.Millisecond
)

// RetryWait is the time after which an unanswered write may be tried again.
const RetryWait = maxSettleWait

// SendTimeout bounds one try of a write, so that a reply that was lost in a leader change costs one try and not the
// whole operation.
const SendTimeout = time.Second

// Change is one conditional write: the data that is to replace revision Expect of Key. An Expect of 0 is that of a key without a message.
type Change struct {
	Key    string
	Expect uint64
	Data   []byte
	TTL    time.Duration // 0 for none
	Purge  bool          // write a marker: the key is absent to readers
	Held   time.Time     // the time until which the entry at Expect exists, if this process wrote it; zero when it was only read
	Within time.Duration // bounds each try and each read after it, if it is less than SendTimeout; 0 for none

	// Generation is the generation of the bucket in which Expect is a revision. In another generation the change is refused. 0 is any.
	Generation uint64

	// Token reports whether the revision becomes a part of a token. The write then succeeds only if the generation in which it was stored is
	// known.
	Token bool

	Writer Writer
}

// Writer decides, for a [Change], whether this writer wrote the key's present entry.
type Writer interface {
	// Judge interprets the entry of the key after a try that was not acknowledged.
	Judge(ctx context.Context, e Entry) Verdict

	// Pushed is Judge of the last pushed entry of the key, which saves a read if it is later than Change.Expect. The zero value is none.
	Pushed() Verdict
}

// Verdict is what a [Writer] finds in the entry of its key, after a try that was not acknowledged.
type Verdict struct {
	Revision uint64
	Ours     bool  // this write stored it, or an earlier write of the same writer whose outcome was unknown
	Err      error // it cannot be decoded: the write ends with this error
}

// ConflictError is returned when a change was not made because the key holds another revision.
type ConflictError struct {
	Key      string
	Revision uint64
}

// Error names the key and the revision.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q is at revision %d", e.Key, e.Revision)
}

// outdated reports whether a read returned an older entry than an entry of this process that was acknowledged and cannot have expired.
// Then a deposed leader answered, or the key is absent because another process claimed it since for a shorter time. A marker, which the
// server accepts only where the key is absent, decides between the two.
func (c Change) outdated(revision uint64) bool {
	return revision < c.Expect && time.Now().Before(c.Held)
}

// Write makes the change, or returns a [ConflictError] when the key has another revision. It returns the new revision, and the time at
// which the try that the server acknowledged was sent.
//
// A refusal proves no more than a time-out does: around a leader change both have been seen for writes that were applied. So after either,
// Write reads the key from the leader, and the Writer compares the owner in the entry with its own. That read may be outdated too. So if
// the entry is that of this writer, another conditional write on the revision found confirms it. If the key is unchanged, Write sends the
// change again. Only an acknowledgement, or a later entry of another writer, ends Write. One round trip, as a rule; three when the outcome
// was unknown.
func (s *Store) Write(ctx context.Context, c Change) (revision uint64, sent time.Time, err error) {
	sent = time.Now()
	if revision, err = s.SendOnce(ctx, c, s.OpTimeout); err == nil {
		return revision, sent, nil
	}
	return s.Settle(ctx, c, sent, sent, err)
}

// errRemade is returned for a write when the bucket is, or may be, another bucket than that of the write.
var errRemade = errors.New("kvlock: the bucket was recreated, or marked as restored")

// SendOnce is the first try of Write, and waits for no longer than bound. It makes one more round trip when the connection was down, or
// when the revision becomes a token and the server was not asked for the generation within [Confirmed].
func (s *Store) SendOnce(ctx context.Context, c Change, bound time.Duration) (revision uint64, err error) {
	began := time.Now()
	if err := s.acks.Down(); err != nil { // a question about the generation would wait for the lock of the connection
		return 0, err
	}
	// After a lost connection the bucket may be another: a condition on a revision would be true there by chance.
	if s.trust() == doubted {
		if err := s.confirm(ctx, bound); err != nil {
			return 0, err
		}
	}
	generation := s.generation.known.Load().number
	if c.Generation != 0 && c.Generation != generation {
		return 0, errRemade
	}
	revision, err = s.publish(ctx, c, min(cmp.Or(c.Within, SendTimeout), SendTimeout, bound-time.Since(began)))
	if err != nil || !c.Token {
		return revision, err
	}
	// Ask only now: an answer from before the write does not say in which generation the write was stored.
	if s.trust() != fresh {
		if err := s.confirm(ctx, bound-time.Since(began)); err != nil {
			return revision, err
		}
	}
	// The write was stored before or after the bucket was recreated. Its revision may repeat an earlier token.
	if s.generation.known.Load().number != generation {
		return revision, errRemade
	}
	return revision, nil
}

// Settle is the rest of Write, after a first try at the time sent that failed with the error last. The time of the operation counts from
// since.
func (s *Store) Settle(ctx context.Context, c Change, sent, since time.Time, last error) (uint64, time.Time, error) {
	ctx, cancel := s.Bound(ctx, s.OpTimeout-time.Since(since))
	defer cancel()
	for n := 0; ; n++ {
		if jsapi.IsPermanent(last) {
			return 0, sent, s.final("write", c.Key, last)
		}
		now, err := s.judge(ctx, c)
		if err == nil && now.Err == nil {
			err = s.replaced(ctx, c, now.Revision)
		}
		applied := err == nil && now.Revision != c.Expect && !c.outdated(now.Revision)
		switch {
		case errors.As(err, new(*ConflictError)):
			return 0, sent, err
		case err == nil && now.Err != nil:
			return 0, sent, now.Err
		case applied && !now.Ours:
			return 0, sent, &ConflictError{Key: c.Key, Revision: now.Revision}
		case applied: // but a deposed leader may have said so: only an acknowledgement confirms it
			c.Expect = now.Revision
		default: // not applied, or not yet, or not seen
			if !retry.Backoff(ctx, n, minSettleWait, maxSettleWait) {
				return 0, sent, s.Unavailable(ctx, "write", []string{c.Key}, errors.Join(last, err))
			}
		}
		sent = time.Now()
		var revision uint64
		if revision, last = s.SendOnce(ctx, c, SendTimeout); last == nil {
			return revision, sent, nil
		}
	}
}

// replaced returns a [ConflictError] when the key is found at revision, and the entry that the change was to replace is gone. Either the
// bucket has another generation, or the key is absent although its entry cannot have expired, which a marker proves.
func (s *Store) replaced(ctx context.Context, c Change, revision uint64) error {
	outdated := c.outdated(revision)
	switch {
	case c.Generation != 0 && c.Generation != s.Generation(), outdated && s.isRemade(ctx, cmp.Or(c.Generation, s.Generation())):
	case outdated && revision == 0:
		var err error
		if revision, err = s.publish(ctx, Change{Key: c.Key, TTL: MarkerTTL(0), Purge: true}, SendTimeout); err != nil {
			return err
		}
	default:
		return nil
	}
	return &ConflictError{Key: c.Key, Revision: revision}
}

// judge returns the verdict on the entry of a change's key after the change was not acknowledged.
func (s *Store) judge(ctx context.Context, c Change) (Verdict, error) {
	if now := c.Writer.Pushed(); now.Revision > c.Expect {
		return now, nil
	}
	if c.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Within)
		defer cancel()
	}
	entry, err := s.Leader(ctx, c.Key)
	if err != nil {
		return Verdict{}, err
	}
	return c.Writer.Judge(ctx, entry), nil
}

// Mark replaces revision expect of a key by a marker: readers find the key absent. A ttl of 0 is none. Mark sends one request, once. One
// round trip.
func (s *Store) Mark(ctx context.Context, key string, expect uint64, ttl time.Duration) error {
	_, err := s.publish(ctx, Change{Key: key, Expect: expect, TTL: ttl, Purge: true}, SendTimeout)
	return err
}

// RemoveCorrupt replaces an entry that cannot be decoded by a marker, if the key still has that entry. The marker has no TTL, because the
// TTL of the entry is unknown; the next write replaces the marker. RemoveCorrupt reports whether this call removed the entry, and then
// logs it, so that of many processes that read the entry at the same time one logs it.
func (s *Store) RemoveCorrupt(ctx context.Context, key string, revision uint64, cause error) bool {
	err := s.Mark(ctx, key, revision, 0)
	switch {
	case err == nil:
		s.Log.ErrorContext(ctx, "kvlock: corrupt record is removed and treated as absent", "key", key, "revision", revision, "error", cause)
	case !jsapi.IsRefused(err):
		s.Log.WarnContext(ctx, "kvlock: corrupt record is treated as absent, and stays until it is read again or the key is claimed",
			"key", key, "revision", revision, "error", errors.Join(cause, err))
	}
	return err == nil
}

// Persist calls try until it succeeds, fails for good, or ctx ends. op and key name the operation in errors.
func (s *Store) Persist(ctx context.Context, op, key string, try func() error) error {
	for n := 0; ; n++ {
		switch err := try(); {
		case err == nil:
			return nil
		case jsapi.IsPermanent(err):
			return s.final(op, key, err)
		case !retry.Backoff(ctx, n, minSettleWait, maxSettleWait):
			return s.Unavailable(ctx, op, []string{key}, err)
		}
	}
}

// publish sends one try of a write, and waits for its acknowledgement no longer than within. The server accepts the write only while
// revision Expect is the last of the key; 0 means none.
func (s *Store) publish(ctx context.Context, c Change, within time.Duration) (uint64, error) {
	m := nats.NewMsg(s.put + c.Key)
	m.Data = c.Data
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(c.Expect, 10))
	m.Header[headerGeneration] = s.generation.known.Load().header
	if c.TTL > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(c.TTL/time.Second), 10)+"s")
	}
	if c.Purge {
		m.Header.Set(headerOperation, operationPurge) // the bucket keeps one message of each key, so a marker needs no rollup
	}

	// The last known revision and the era are those from before the write: both may change until the acknowledgement is here.
	before, began, era := s.highest.Load(), time.Now(), s.Hub.Era.Load()
	api := s.api
	api.Within = within
	revision, err := api.Publish(ctx, s.Stream, m)
	if err != nil {
		return 0, err
	}
	// A stream never acknowledges a lower revision than before, unless it is another stream.
	if revision <= before {
		s.fellBack(ctx, before, revision, began.Add(within))
	}
	for now := before; now < revision; now = s.highest.Load() {
		if s.highest.CompareAndSwap(now, revision) {
			break
		}
	}
	if mirror := s.Hub.mirror; mirror != nil {
		mirror.Changed(c.Key, revision, era)
	}
	return revision, nil
}

// Send sends m to stream, once, and returns the sequence at which it was stored. It sends nothing while the connection is down: the client
// would keep the message and send it much later, after its claim has expired.
func (s *Store) Send(ctx context.Context, stream string, m *nats.Msg, bound time.Duration) (uint64, error) {
	api := s.api
	api.Within = bound
	return api.Publish(ctx, stream, m)
}

// final explains an error that ended the tries.
func (s *Store) final(op, key string, err error) error {
	switch {
	case jsapi.IsFull(err) || errors.Is(err, nats.ErrConnectionClosed):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case jsapi.IsTooLarge(err):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return fmt.Errorf("kvlock: %s %q in bucket %q: %w", op, key, s.Bucket, err)
}

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

// trustLevel says for what the known generation of the bucket is good enough.
type trustLevel uint8

const (
	doubted trustLevel = iota // for nothing: the server has to be asked before the next write
	steady                    // for a write: nothing has hinted at another generation since the server was asked
	fresh                     // for a token as well: the server was asked within Confirmed
)

// trust returns how far the known generation is trusted now.
func (s *Store) trust() trustLevel {
	k := s.generation.known.Load()
	switch {
	// Another server may have another bucket of that name. So after a reconnect an earlier answer counts no more.
	case k == nil || k.asked.IsZero() || k.reconnects != s.Conn.Stats().Reconnects:
		return doubted
	case time.Since(k.asked) < Confirmed:
		return fresh
	default:
		return steady
	}
}

// IsFresh reports whether the server was asked for the generation within [Confirmed], on the present connection. Then a revision may
// become a token. It is false while the connection is lost, whose lock is not to be waited for.
func (s *Store) IsFresh() bool { return s.acks.Down() == nil && s.trust() == fresh }

// Generation returns the generation of the bucket, in nanoseconds since 1970; 0 for a store that was not opened.
func (s *Store) Generation() uint64 {
	if k := s.generation.known.Load(); k != nil {
		return k.number
	}
	return 0
}

// confirm asks the stream's leader for the generation, and waits no longer than bound for the answer. Callers that wait for the same
// question share its answer. One round trip.
func (s *Store) confirm(ctx context.Context, bound time.Duration) error {
	g, came := &s.generation, time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(bound, SendTimeout))
	defer cancel()
	g.asks <- struct{}{}
	defer func() { <-g.asks }()
	if s.trust() == fresh { // another caller has asked
		return nil
	}
	if g.failed.After(came) {
		return g.failure
	}
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
		if err := s.confirm(s.Closing, SendTimeout); err != nil {
			s.Log.Debug("kvlock: the generation of the bucket is asked for by the next write", "error", err)
		}
	})
}

// isRemade reports whether the bucket has a later generation than then. One round trip.
func (s *Store) isRemade(ctx context.Context, then uint64) bool {
	s.invalidate()
	return s.confirm(ctx, SendTimeout) == nil && s.Generation() > then
}

// fellBack handles the acknowledgement of a revision that is not greater than before, the highest revision known when the write was sent.
// The bucket was deleted and created again, or restored from a backup. Then it has another generation, for which fellBack asks, until by.
// One round trip.
func (s *Store) fellBack(ctx context.Context, before, revision uint64, by time.Time) {
	ctx, cancel := s.Bound(ctx, time.Until(by))
	defer cancel()
	then := s.Generation()
	s.invalidate()
	switch err := s.confirm(ctx, SendTimeout); {
	case err != nil:
		s.Log.WarnContext(ctx, "kvlock: bucket was recreated, its generation is not known yet", "error", err)
	case s.Generation() == then:
		// Each write asks again, until the bucket is marked or the old sequence is reached.
		s.Log.ErrorContext(ctx, "kvlock: bucket was restored from a backup and gives tokens again that it has given: call MarkRestored",
			"revision", revision, "before", before)
	default:
		s.highest.Store(revision)
	}
}
