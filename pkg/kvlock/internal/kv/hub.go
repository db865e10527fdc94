package kv

import (
	"container/heap"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/directget"
)

// View is an entry as the layer above decoded it, for the watchers of its key.
type View struct {
	Value   any       // shared by all watchers, and never changed
	Expires time.Time // the time at which the server removes the entry if nobody writes it, see Expiry; zero for never
	Polled  bool      // watchers wait for the expiry: the key is read when the entry expires
}

// Receiver receives the changes of watched keys. Its methods are called with the hub locked, and must not call the hub.
type Receiver interface {
	// Deliver takes the value of a key. first reports whether the value was read after the watch was added: other values may be older than
	// the last write of the watcher's caller. A value may be delivered again.
	Deliver(value any, first bool)

	// Knows reports whether the receiver has taken a value of the key. While it has not, the key is read for it.
	Knows(key string) bool

	// Wake makes the receiver check Hub.Over.
	Wake()
}

// Watch is a set of keys that a receiver watches.
type Watch struct {
	Keys []string
	To   Receiver

	// The fields below are guarded by the hub's mu.
	after   *Watch // see Hub.pending
	closed  bool
	resting bool // see Hub.Rest
}

// Hub feeds all watchers of a bucket: from one subscription, and from one goroutine that reads due keys again. Both start with the first
// watcher and end with the store.
type Hub struct {
	store  *Store
	pushes string // the part before the key of the subjects of pushes, see pushPrefix
	checks leaderCheck
	mirror Mirror        // nil when there is none
	era    atomic.Uint64 // see Era
	cut    chan struct{} // closed when the connection is closed for good
	done   chan struct{} // closed when the poller has ended
	wake   chan struct{}

	mu        sync.Mutex
	gaps      gapTracker
	pending   *Watch // the first of a list of watches whose keys the poller adds
	due       dueHeap
	lastHeard time.Time // the time of the bucket's last answer or push
	keys      map[string]*watched
	reads     uint64 // how many reads have begun
	started   bool
	stop      func()
	until     time.Time // the time until which the poller sleeps, if nobody wakes it; in the past while it works
	regular   int       // the number of keys that are polled regularly
}

// watched is a key with watchers.
type watched struct {
	key      string
	known    bool      // the next fields are those of the last delivered view
	revision uint64    // of it, as the next two
	created  time.Time //
	view     View
	asOf     uint64    // the change up to which the view is true; 0 when unknown
	floor    uint64    // the change up to which pushes may be missing: the key was not watched yet, or a push was of no use
	pushed   uint64    // the number of reads that had begun at its last push
	next     time.Time // when to read it again
	since    uint64    // the first read that counts: an earlier one may have missed a push
	index    int       // in the heap
	deferred int8      // the number of times in a row that the read was deferred
	rests    bool      // see resting
	watchers followers
}

// expired reports whether the server may have removed the key by now.
func (k *watched) expired(now time.Time) bool {
	return !k.view.Expires.IsZero() && !now.Before(k.view.Expires)
}

// followers are the watchers of a key, each with the number of reads that had begun when it was added. As a rule there is one watcher, and
// then no map.
type followers struct {
	one  *Watch // nil when there is none, or more than one
	came uint64 // of that one
	all  map[*Watch]uint64
}

func (f *followers) add(w *Watch, came uint64) {
	switch {
	case f.all != nil:
		f.all[w] = came
	case f.one == nil || f.one == w:
		f.one, f.came = w, came
	default:
		f.all = map[*Watch]uint64{f.one: f.came, w: came}
		f.one = nil
	}
}

func (f *followers) remove(w *Watch) {
	delete(f.all, w)
	if f.one == w {
		f.one = nil
	}
}

func (f *followers) none() bool { return f.one == nil && len(f.all) == 0 }

// each yields all watchers, with their numbers of reads.
func (f *followers) each(yield func(w *Watch, came uint64) bool) {
	if f.one != nil && !yield(f.one, f.came) {
		return
	}
	for w, came := range f.all {
		if !yield(w, came) {
			return
		}
	}
}

func newHub(s *Store, republish *jetstream.RePublish) *Hub {
	return &Hub{
		store: s, pushes: pushPrefix(s.prefix, republish), keys: map[string]*watched{},
		checks: leaderCheck{done: make(chan struct{}), wake: make(chan struct{}, 1)},
		cut:    make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// Add watches the keys of w. The poller adds the keys before it reads them, so that the caller's goroutine does not need the stack for
// that. Pushes before the first read are not delivered to w.
func (h *Hub) Add(w *Watch) error {
	h.mu.Lock()
	err := h.admit()
	if err == nil {
		w.after, h.pending = h.pending, w
	}
	h.mu.Unlock()
	h.wakePoller()
	return err
}

// AddNow is Add for a watcher that needs all pushes from now on. The watcher rests at first.
func (h *Hub) AddNow(w *Watch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.admit()
	if err == nil {
		w.resting = true
		h.place(w)
	}
	return err
}

// admit returns the reason that no watcher may be added, or nil. The caller holds mu.
func (h *Hub) admit() error {
	if err := context.Cause(h.store.Closing); err != nil {
		return err
	}
	if err := h.start(); err != nil {
		return err
	}
	if len(h.keys) == 0 && h.pending == nil {
		h.lastHeard = time.Now() // the silence begins now: no request was sent before
	}
	return nil
}

// placePending places the watchers that were added. The caller holds mu.
func (h *Hub) placePending() {
	for h.pending != nil {
		w := h.pending
		h.pending, w.after = w.after, nil
		if !w.closed {
			h.place(w)
		}
	}
}

// place adds the keys of w to the hub. The caller holds mu.
func (h *Hub) place(w *Watch) {
	var first time.Time // the time of the first read: at once, unless the watcher rests
	if w.resting {
		first = time.Now().Add(restingPollEvery)
	}
	for _, key := range w.Keys {
		k := h.keys[key]
		if k == nil {
			k = &watched{key: key, next: first, floor: h.gaps.applied, rests: true}
			h.keys[key] = k
			heap.Push(&h.due, k)
		} else if k.next.After(first) {
			h.readAt(k, first)
		}
		k.watchers.add(w, h.reads)
		h.count(k)
		if k.index == 0 {
			h.wakePoller()
		}
	}
}

// Remove ends a watch.
func (h *Hub) Remove(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.closed = true
	for _, key := range w.Keys {
		k := h.keys[key]
		if k == nil {
			continue
		}
		k.watchers.remove(w)
		if k.watchers.none() {
			delete(h.keys, key)
			heap.Remove(&h.due, k.index)
		}
		h.count(k)
	}
}

func (h *Hub) wakePoller() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// start subscribes to changes and starts the poller, once. The caller holds mu.
func (h *Hub) start() error {
	if h.started {
		return nil
	}
	if h.pushes == "" {
		return fmt.Errorf("kvlock: bucket %q does not republish all its changes, so no caller could wait for one: "+
			"set its RePublish as kvlock.StreamConfig does", h.store.Bucket)
	}
	nc := h.store.Conn
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	sub, err := nc.Subscribe(h.pushes+">", h.onPush)
	if err != nil {
		nc.RemoveStatusListener(status)
		return fmt.Errorf("kvlock: watch bucket %q: %w: %w", h.store.Bucket, ErrUnavailable, err)
	}
	h.started = true
	h.stop = func() {
		_ = sub.Unsubscribe() // the connection is closed, then
		nc.RemoveStatusListener(status)
	}
	go h.run(status)
	return nil
}

func (h *Hub) close() {
	h.mu.Lock()
	started, checks := h.started, h.checks.started
	h.mu.Unlock()
	if !started {
		return
	}
	<-h.done
	if checks {
		<-h.checks.done
	}
	h.stop()
}

// Silence returns the time for which the bucket has neither answered nor pushed although the hub has asked it.
func (h *Hub) Silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.lastHeard)
}

// MaxSilence returns the longest Silence of a bucket that can be reached.
func (h *Hub) MaxSilence() time.Duration { return 2*PollEvery + h.store.OpTimeout }

// onPush applies a message that the bucket republished. When it cannot be decoded, the key is read from the bucket: anybody
// could have published the message, so nothing is removed because of it.
func (h *Hub) onPush(m *nats.Msg) {
	h.store.suspect(m.Header)
	key := strings.TrimPrefix(m.Subject, h.pushes)
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err == nil && h.mirror != nil {
		h.mirror.Pushed(key, sequence)
	}
	if !h.track(key, sequence) {
		return
	}
	message, err := directget.Pushed(m)
	if err == nil {
		e := h.store.entry(key, message, h.Era())
		var v View
		if v, err = h.store.pushed(e); err == nil {
			h.deliver(&e, v, 0)
			return
		}
	}
	h.store.Log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
	h.readSoon(key)
}

// deliver gives v, the view of e, to the watchers of its key, if it is later than the value that the hub knows. read is
// the number of the read that it comes from; 0 for a push.
func (h *Hub) deliver(e *Entry, v View, read uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastHeard = time.Now()
	k := h.keys[e.Key]
	if k == nil {
		return
	}
	if read == 0 {
		k.pushed = h.reads
	}
	// A read that found no key may have missed the write that was pushed meanwhile.
	missed := read > 0 && read <= k.pushed && e.Revision == 0 && !k.expired(h.lastHeard)
	other := e.Revision == k.revision && e.Created.After(k.created) // the entry of a bucket that was made anew
	if !k.known || other || !missed && Later(e.Revision, e.Created, k.revision, k.created) {
		k.known, k.revision, k.created, k.view = true, e.Revision, e.Created, v
	}
	early := read > 0 && read < k.since
	if k.next = k.nextRead(h.lastHeard); early || !k.served(read) {
		k.next = time.Time{} // a watcher was added, or a push came, while the key was read
	}
	if !early && !missed {
		k.asOf = max(k.asOf, e.AsOf)
	}
	heap.Fix(&h.due, k.index)
	if k.next.Before(h.until) { // as a rule it is not: a push defers the next read
		h.wakePoller()
	}
	for w, came := range k.watchers.each {
		w.To.Deliver(k.view.Value, came < read)
	}
}

// served reports whether every watcher of k has a value, or has waited for the given read or an earlier one.
func (k *watched) served(read uint64) bool {
	for w, came := range k.watchers.each {
		if came >= read && !w.To.Knows(k.key) {
			return false
		}
	}
	return true
}
