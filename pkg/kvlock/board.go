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

	// restingEvery is the same for keys of which a watcher learns in other ways too.
	restingEvery = 10 * time.Second

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
	store  *store
	source source
	cut    chan struct{} // closed when the connection is closed for good
	done   chan struct{} // closed when the reading has ended
	wake   chan struct{}
	checks *checker

	mu      sync.Mutex
	coming  *Watcher // and those after it are for the goroutine to place
	due     dueHeap
	heard   time.Time // when the bucket was last heard of
	keys    map[string]*watched
	reads   uint64 // how many reads have begun
	started bool
	stop    func()
	until   time.Time // until when the reading sleeps, if nobody wakes it; in the past while it does not
	pushes  pushes
	regular int // how many keys are looked at regularly
}

// watched is a key with watchers.
type watched struct {
	key      string
	asOf     uint64    // the change up to which what is known of it is true; 0 when unknown
	floor    uint64    // up to which it may have missed pushes: it was not watched yet, or one was of no use
	last     *Slot     // nil when nothing is known; shared by all who are told of it, and never changed
	next     time.Time // when to read it again
	since    uint64    // the first read that is not too early: an earlier one may have missed what was pushed
	index    int       // in the heap
	put      int8      // how often the read was put off in a row
	rests    bool      // see resting
	watchers followers
}

// followers are the watchers of a key, with how many reads had begun when they came: mostly there is one, and no map for
// it.
type followers struct {
	one  *Watcher // nil when there is none, or more
	came uint64   // that one
	all  map[*Watcher]uint64
}

func (f *followers) add(w *Watcher, came uint64) {
	switch {
	case f.all != nil:
		f.all[w] = came
	case f.one == nil || f.one == w:
		f.one, f.came = w, came
	default:
		f.all = map[*Watcher]uint64{f.one: f.came, w: came}
		f.one = nil
	}
}

func (f *followers) remove(w *Watcher) {
	delete(f.all, w)
	if f.one == w {
		f.one = nil
	}
}

func (f *followers) none() bool { return f.one == nil && len(f.all) == 0 }

// each goes over all of them.
func (f *followers) each(yield func(w *Watcher, came uint64) bool) {
	if f.one != nil && !yield(f.one, f.came) {
		return
	}
	for w, came := range f.all {
		if !yield(w, came) {
			return
		}
	}
}

func newBoard(s *store, republish *jetstream.RePublish) *board {
	return &board{
		store: s, source: newSource(s.prefix, republish), keys: map[string]*watched{},
		cut: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), checks: newChecker(s),
	}
}

// add has the keys of w watched by the board's goroutine, before it reads them: whoever waits keeps the stack that it takes,
// and what is pushed before the first read is of no use to it.
func (b *board) add(w *Watcher) error {
	b.mu.Lock()
	err := b.admit()
	if err == nil {
		w.after, b.coming = b.coming, w
	}
	b.mu.Unlock()
	b.nudge()
	return err
}

// addNow is add for who needs what is pushed from now on.
func (b *board) addNow(w *Watcher) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.admit()
	if err == nil {
		b.place(w)
	}
	return err
}

// admit says whether anybody may come. It is called with mu held.
func (b *board) admit() error {
	if err := context.Cause(b.store.ending); err != nil {
		return err
	}
	if err := b.start(); err != nil {
		return err
	}
	if len(b.keys) == 0 && b.coming == nil {
		b.heard = time.Now() // nothing was asked
	}
	return nil
}

// settle places the watchers that have come. It is called with mu held.
func (b *board) settle() {
	for b.coming != nil {
		w := b.coming
		b.coming, w.after = w.after, nil
		if !w.closed {
			b.place(w)
		}
	}
}

// place is called with mu held.
func (b *board) place(w *Watcher) {
	var first time.Time // when the keys are to be read: at once, unless the watcher looks for itself
	if w.resting {
		first = time.Now().Add(restingEvery)
	}
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			k = &watched{key: key, next: first, floor: b.pushes.applied, rests: true}
			b.keys[key] = k
			heap.Push(&b.due, k)
		} else if k.next.After(first) {
			b.readAt(k, first)
		}
		k.watchers.add(w, b.reads)
		b.count(k)
		if k.index == 0 {
			b.nudge()
		}
	}
}

func (b *board) remove(w *Watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.closed = true
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			continue
		}
		k.watchers.remove(w)
		if k.watchers.none() {
			delete(b.keys, key)
			heap.Remove(&b.due, k.index)
		}
		b.count(k)
	}
}

func (b *board) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// open starts what add starts otherwise.
func (b *board) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start()
}

// start subscribes to changes and starts the reading, once.
func (b *board) start() error {
	if b.started {
		return nil
	}
	nc := b.store.nc
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	unsubscribe, err := b.subscribe()
	if err != nil {
		nc.RemoveStatusListener(status)
		return fmt.Errorf("kvlock: watch bucket %q: %w: %w", b.store.bucket, ErrUnavailable, err)
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
	b.checks.close()
	b.stop()
}

// silence is for how long nothing was heard of the bucket although something was asked.
func (b *board) silence() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.heard)
}

// patience is how much silence there is at most when the bucket can be reached.
func (b *board) patience() time.Duration { return 2*recheckEvery + b.store.opTimeout }

// pushed takes a message that the bucket republished. One that cannot be decoded is read from the bucket: nothing is
// removed because of what somebody sent.
func (b *board) pushed(m *nats.Msg) {
	key := strings.TrimPrefix(m.Subject, b.source.trim)
	if key == purgeKey {
		b.purgePushed(m)
	}
	b.store.memory.pushed(key, m)
	if !b.hears(key, m) {
		return
	}
	message, err := directget.Pushed(m)
	if err == nil {
		message.Subject = b.store.prefix + key
		var slot Slot
		if slot, err = b.store.decode(message); err == nil {
			b.tell(slot, 0)
			return
		}
	}
	b.store.log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
	b.readSoon(key)
}

// readSoon has the key read at once.
func (b *board) readSoon(key string) { b.readSince(key, 0) }

// readSince is readSoon, and what is known of the key before the given change is not good enough.
func (b *board) readSince(key string, asOf uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[key]; k != nil {
		k.next, k.since = time.Time{}, b.reads+1
		k.asOf, k.floor = 0, max(asOf, b.pushes.applied)
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
	if k.last == nil || slot.follows(*k.last) {
		last := slot
		last.Key = k.key // the other one keeps all of the message's header
		k.last = &last
	}
	early := read > 0 && read < k.since
	if k.next = k.nextRead(b.heard); early || !k.served(read) {
		k.next = time.Time{} // somebody came, or something, while it was read
	}
	if !early {
		k.asOf = max(k.asOf, slot.asOf)
	}
	heap.Fix(&b.due, k.index)
	if k.next.Before(b.until) { // mostly it is not: a push puts the next look off
		b.nudge()
	}
	for w, came := range k.watchers.each {
		w.tell(k.last, came < read)
	}
}

// served says that no watcher of k that knows nothing yet waits for a read later than the given one.
func (k *watched) served(read uint64) bool {
	for w, came := range k.watchers.each {
		if came >= read && !w.knows(k.key) {
			return false
		}
	}
	return true
}
