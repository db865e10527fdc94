package kvlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
)

const (
	// checkEvery is how often the leader is asked.
	checkEvery = time.Second

	// checkGrace is how long the last pushes may be on their way when the leader's answer is there already.
	checkGrace = 250 * time.Millisecond
)

// checker asks the stream's leader every so often for the number of the last change, for those who know what pushes keep
// true: the memory, and the board when it has many keys to look at.
type checker struct {
	store *store
	done  chan struct{} // closed when the asking has ended
	wake  chan struct{}

	started bool // guarded by the board's mu

	mu   sync.Mutex
	gone bool      // the stream was, when last asked for
	made time.Time // when the stream was, as last told; zero when it never was
}

func newChecker(s *store) *checker {
	return &checker{store: s, done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// start starts the asking, once. It is called with the board's mu held.
func (c *checker) start() {
	if c.started || c.store.ending.Err() != nil {
		return
	}
	c.started = true
	go c.run(c.store.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING))
}

// run asks the leader every so often, until the store closes.
func (c *checker) run(status chan nats.Status) {
	defer close(c.done)
	defer c.store.nc.RemoveStatusListener(status)
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	for {
		select {
		case <-c.store.ending.Done():
			return
		case now := <-status:
			if now != nats.CONNECTED {
				c.store.memory.suspend()
				c.store.board.suspend()
				continue
			}
		case <-c.wake:
		case <-timer.C:
		}
		if c.store.memory != nil || c.store.board.crowded() {
			if err := c.check(c.store.ending); err != nil {
				c.store.board.suspend()
				c.store.log.Debug("kvlock: pushes are not confirmed, asking again", "error", err)
			}
		}
		timer.Reset(checkEvery)
	}
}

// soon has the leader asked at once.
func (c *checker) soon() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// check asks the leader for the number of the last change. When all changes up to it were pushed, what is known was true
// when the question was sent, or when the leader was last known to be it. When they were not, and none of them came after
// a while, they got lost.
func (c *checker) check(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(tryTimeout, c.store.opTimeout))
	defer cancel()
	applied, sent := c.store.board.pushedUpTo(), time.Now()
	stream, err := c.store.js.Stream(ctx, streamName(c.store.bucket))
	answered := time.Now()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.gone = true // it may come back with less
	}
	if err != nil {
		return fmt.Errorf("kvlock: ask for the last change of bucket %q: %w: %w", c.store.bucket, ErrUnavailable, err)
	}
	info := stream.CachedInfo()
	led, err := leads(info.Cluster)
	if err != nil {
		return fmt.Errorf("kvlock: ask for the last change of bucket %q: %w: %w", c.store.bucket, ErrUnavailable, err)
	}
	if err := c.follow(ctx, info, applied); err != nil {
		return err
	}
	c.store.clock.asked(sent, answered, info.TimeStamp)
	c.store.memory.extend(sent.Add(-led))
	c.store.board.extend(sent.Add(-led))
	return nil
}

// follow sees to it that nothing that is known is older than the answer of the leader. All changes up to applied had been
// pushed when it was asked.
func (c *checker) follow(ctx context.Context, info *jetstream.StreamInfo, applied uint64) error {
	last, first := info.State.LastSeq, c.made.IsZero()
	anew := c.gone || !first && !info.Created.Equal(c.made) || last < applied // the stream is another one, or was restored
	c.gone, c.made = false, info.Created
	switch {
	case anew:
		c.reset(last)
	case first:
		c.skip(last)
	default:
		return c.await(ctx, last)
	}
	return nil
}

// await waits a while until all changes up to last have been pushed.
func (c *checker) await(ctx context.Context, last uint64) error {
	before := c.store.board.pushedUpTo()
	if before >= last {
		return nil
	}
	if !backoff.Pause(ctx, checkGrace) {
		return context.Cause(ctx)
	}
	switch now := c.store.board.pushedUpTo(); {
	case now >= last:
	case now > before: // they are late, and the next of them would tell if any before it was lost
		return errBehind
	default:
		c.store.log.WarnContext(ctx, "kvlock: changes of the bucket were not pushed, nothing that is known is believed")
		c.skip(last)
	}
	return nil
}

// skip has everybody begin anew behind the change last. Pushes may have overtaken the answer that told of it: they will
// not come again, so who has heard of later changes begins behind those.
func (c *checker) skip(last uint64) {
	c.store.memory.skip(last)
	c.store.board.skip(last)
}

// reset has everybody begin anew behind the change last of a stream whose changes have nothing to do with those before.
func (c *checker) reset(last uint64) {
	c.store.memory.reset(last)
	c.store.board.reset(last)
}

// close waits until the asking has ended. The store is ending.
func (c *checker) close() {
	c.store.board.mu.Lock()
	started := c.started
	c.store.board.mu.Unlock()
	if started {
		<-c.done
	}
}

// leads is how long ago who gave an answer was the leader for sure. While there is none, any server that keeps the stream
// answers, with what it has. And a leader that has been cut off from the others does not know for a long time that
// another was elected: it was the leader when it last heard of so many that they are a majority with it.
func leads(c *jetstream.ClusterInfo) (ago time.Duration, err error) {
	if c == nil || len(c.Replicas) == 0 { // there is but one
		return 0, nil
	}
	var heard []time.Duration
	for _, r := range c.Replicas { // the others than who answers
		if r.Name == c.Leader {
			return 0, errNotLeader
		}
		if r.Active > 0 { // 0 for never
			heard = append(heard, r.Active)
		}
	}
	others := (len(c.Replicas) + 1) / 2
	if c.Leader == "" || len(heard) < others {
		return 0, errNotLeader
	}
	slices.Sort(heard)
	return heard[others-1], nil
}

var (
	errBehind    = errors.New("pushes come late")
	errNotLeader = errors.New("who answered may not be the leader")
)
