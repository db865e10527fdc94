package kvlock

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
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
	flight  *Flight
	subject string // where the bucket republishes, with a wildcard at its end; "" when it does not
	trim    string // what republished subjects have before the key

	mu      sync.Mutex
	keys    map[string]*watched
	due     dueHeap
	wake    chan struct{}
	started bool
	done    chan struct{}
	stop    func()
}

// watched is a key with watchers.
type watched struct {
	key      string
	last     Slot
	seen     bool
	next     time.Time // when to read it again
	index    int       // in the heap
	watchers map[*Watcher]struct{}
}

func newBoard(f *Flight, republish *jetstream.RePublish) *board {
	b := &board{flight: f, keys: map[string]*watched{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if republish != nil && republish.Destination != "" {
		b.trim = strings.TrimSuffix(republish.Destination, ">") + f.prefix
		b.subject = b.trim + ">"
	}
	return b
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
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			k = &watched{key: key, watchers: map[*Watcher]struct{}{}}
			b.keys[key] = k
			heap.Push(&b.due, k)
		} else {
			k.next = time.Time{}
			heap.Fix(&b.due, k.index)
		}
		k.watchers[w] = struct{}{}
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
	reconnected := nc.StatusChanged(nats.CONNECTED)
	unsubscribe, err := b.subscribe()
	if err != nil {
		nc.RemoveStatusListener(reconnected)
		return fmt.Errorf("kvlock: watch bucket %q: %w", b.flight.cfg.Bucket, err)
	}
	b.started = true
	b.stop = func() {
		unsubscribe()
		nc.RemoveStatusListener(reconnected)
	}
	go b.run(reconnected)
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

// subscribe gets pushes from what the bucket republishes. A bucket that does not is watched with one KV watcher, which
// costs a consumer, and stalls for many seconds when the server that hosts it stops; the reading goes on meanwhile.
func (b *board) subscribe() (unsubscribe func(), err error) {
	if b.subject == "" {
		return b.subscribeWatcher()
	}
	sub, err := b.flight.nc.Subscribe(b.subject, func(m *nats.Msg) {
		if b.watches(strings.TrimPrefix(m.Subject, b.trim)) {
			b.pushed(m)
		}
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

func (b *board) watches(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[key] != nil
}

func (b *board) pushed(m *nats.Msg) {
	message, err := directget.Pushed(m)
	if err != nil {
		b.flight.log.Warn("kvlock: republished message is ignored", "subject", m.Subject, "error", err)
		return
	}
	message.Subject = b.flight.prefix + strings.TrimPrefix(m.Subject, b.trim)
	b.tell(b.flight.slot(b.flight.ending, message))
}

func (b *board) subscribeWatcher() (unsubscribe func(), err error) {
	kv, err := b.flight.js.KeyValue(b.flight.ending, b.flight.cfg.Bucket)
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	watcher, err := kv.WatchAll(b.flight.ending, jetstream.UpdatesOnly(), jetstream.MetaOnly())
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for entry := range watcher.Updates() {
			if entry != nil {
				b.readSoon(entry.Key())
			}
		}
	}()
	return func() {
		_ = watcher.Stop()
		<-ended
	}, nil
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

// tell gives slot to the watchers of its key, if it is later than what the board knows.
func (b *board) tell(slot Slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[slot.Key]
	if k == nil {
		return
	}
	if !k.seen || slot.follows(k.last) {
		k.last, k.seen = slot, true
	}
	k.next = k.nextRead(time.Now())
	heap.Fix(&b.due, k.index)
	b.nudge()
	for w := range k.watchers {
		w.tell(k.last)
	}
}

// nextRead is when to look at the key again though nothing was pushed.
func (k *watched) nextRead(now time.Time) time.Time {
	regular := now.Add(recheckEvery + rand.N(recheckEvery)) //nolint:gosec // spreads reads, guards nothing
	if k.last.State != Pending {
		return regular
	}
	switch expiry := k.last.expiry(); {
	case expiry.IsZero() || now.After(expiry.Add(expiryGrace)):
		return regular
	case now.After(expiry):
		return now.Add(expiryStep)
	case expiry.Before(regular):
		return expiry
	default:
		return regular
	}
}

// run reads keys when they are due, until the Flight closes.
func (b *board) run(reconnected <-chan nats.Status) {
	defer close(b.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.flight.ending.Done():
			return
		case _, open := <-reconnected:
			if !open {
				reconnected = nil // the connection is closed for good
			}
			b.allDue()
		case <-b.wake:
		case <-timer.C:
		}
		if keys := b.takeDue(); len(keys) > 0 {
			b.readAgain(keys)
		}
		timer.Reset(b.untilDue())
	}
}

// allDue makes every key due: while the connection was down pushes were lost.
func (b *board) allDue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.due {
		k.next = time.Time{}
	}
}

// takeDue returns the keys to read now, at most as many as one round trip reads.
func (b *board) takeDue() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var keys []string
	for len(keys) < directget.MaxSubjects && len(b.due) > 0 && b.due[0].next.Before(now.Add(together)) {
		k := b.due[0]
		k.next = k.nextRead(now)
		if k.next.Before(now.Add(together)) {
			k.next = now.Add(together)
		}
		heap.Fix(&b.due, 0)
		keys = append(keys, k.key)
	}
	return keys
}

func (b *board) readAgain(keys []string) {
	slots, err := b.flight.read(b.flight.ending, keys)
	if err != nil {
		b.flight.log.Debug("kvlock: watched keys could not be read, trying again", "keys", len(keys), "error", err)
		return
	}
	for _, slot := range slots {
		b.tell(slot)
	}
}

func (b *board) untilDue() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.due) == 0 {
		return recheckEvery
	}
	return max(0, time.Until(b.due[0].next))
}

// dueHeap orders keys by when they are to be read.
type dueHeap []*watched

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueHeap) Push(x any) {
	k := x.(*watched) //nolint:forcetypeassert // only add pushes
	k.index = len(*h)
	*h = append(*h, k)
}
func (h *dueHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return k
}
