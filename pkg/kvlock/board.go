package kvlock

import (
	"container/heap"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

const (
	// recheckEvery bounds how long a lost push can go unnoticed: from this long to twice as long.
	recheckEvery = time.Second

	// expiryStep is how often a key is read whose claim is over: the server removes it up to 350 ms late.
	expiryStep = 50 * time.Millisecond

	// expiryGrace is for how long that goes on before the key is looked at no more often than others.
	expiryGrace = 2 * time.Second

	// together is how much earlier than due a key is read, to be read with others.
	together = 10 * time.Millisecond
)

// board feeds all watchers of a Flight: from one subscription, and from one goroutine that reads due keys again. Both
// start with the first watcher and end with the Flight.
type board struct {
	flight *Flight
	source source
	cut    chan struct{} // closed when the connection is closed for good
	done   chan struct{} // closed when the reading has ended
	wake   chan struct{}

	mu      sync.Mutex
	due     dueHeap
	heard   time.Time // when the bucket was last heard of
	keys    map[string]*watched
	reads   uint64 // how many reads have begun
	started bool
	stop    func()
}

// watched is a key with watchers.
type watched struct {
	key      string
	last     Slot
	seen     bool
	next     time.Time           // when to read it again
	index    int                 // in the heap
	watchers map[*Watcher]uint64 // with how many reads had begun when they came
}

func newBoard(f *Flight, republish *jetstream.RePublish) *board {
	return &board{
		flight: f, source: newSource(f.prefix, republish), keys: map[string]*watched{},
		cut: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (b *board) add(w *Watcher) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := context.Cause(b.flight.ending); err != nil {
		return err
	}
	if !b.started {
		if err := b.start(); err != nil {
			return err
		}
	}
	if len(b.keys) == 0 {
		b.heard = time.Now() // nothing was asked
	}
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			k = &watched{key: key, watchers: map[*Watcher]uint64{}}
			b.keys[key] = k
			heap.Push(&b.due, k)
		} else {
			k.next = time.Time{}
			heap.Fix(&b.due, k.index)
		}
		k.watchers[w] = b.reads
	}
	b.nudge()
	return nil
}

func (b *board) remove(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			continue
		}
		delete(k.watchers, w)
		if len(k.watchers) == 0 {
			delete(b.keys, key)
			heap.Remove(&b.due, k.index)
		}
	}
}

func (b *board) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// start subscribes to changes and starts the reading.
func (b *board) start() error {
	nc := b.flight.nc
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	unsubscribe, err := b.subscribe()
	if err != nil {
		nc.RemoveStatusListener(status)
		return fmt.Errorf("kvlock: watch bucket %q: %w: %w", b.flight.cfg.Bucket, ErrUnavailable, err)
	}
	b.started = true
	b.stop = func() {
		unsubscribe()
		nc.RemoveStatusListener(status)
	}
	go b.run(status)
	return nil
}

func (b *board) close() {
	b.mu.Lock()
	started := b.started
	b.mu.Unlock()
	if !started {
		return
	}
	<-b.done
	b.stop()
}

// silence is for how long nothing was heard of the bucket although something was asked.
func (b *board) silence() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.heard)
}

// patience is how much silence there is at most when the bucket can be reached.
func (b *board) patience() time.Duration { return 2*recheckEvery + b.flight.cfg.OpTimeout }

// pushed takes a message that the bucket republished. One that cannot be decoded is read from the bucket: nothing is
// removed because of what somebody sent.
func (b *board) pushed(m *nats.Msg) {
	key := strings.TrimPrefix(m.Subject, b.source.trim)
	if !b.watches(key) {
		return
	}
	message, err := directget.Pushed(m)
	if err == nil {
		message.Subject = b.flight.prefix + key
		var slot Slot
		if slot, err = b.flight.decode(message); err == nil {
			b.tell(slot, 0)
			return
		}
	}
	b.flight.log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
	b.readSoon(key)
}

func (b *board) watches(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[key] != nil
}

// readSoon has the key read at once.
func (b *board) readSoon(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[key]; k != nil {
		k.next = time.Time{}
		heap.Fix(&b.due, k.index)
		b.nudge()
	}
}

// tell gives slot to the watchers of its key, if it is later than what the board knows. read is the number of the read
// that it comes from; 0 for a push.
func (b *board) tell(slot Slot, read uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = time.Now()
	k := b.keys[slot.Key]
	if k == nil {
		return
	}
	if !k.seen || slot.follows(k.last) {
		k.last, k.seen = slot, true
	}
	if k.next = k.nextRead(b.heard); !k.served(read) {
		k.next = time.Time{} // somebody came while it was read
	}
	heap.Fix(&b.due, k.index)
	b.nudge()
	for w, came := range k.watchers {
		w.tell(k.last, came < read)
	}
}

// served says that no watcher of k that knows nothing yet waits for a read later than the given one.
func (k *watched) served(read uint64) bool {
	for w, came := range k.watchers {
		if came >= read && !w.knows(k.key) {
			return false
		}
	}
	return true
}
