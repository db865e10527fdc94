package kv

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
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
	// Set at the start.
	store  *Store
	pushes string // the part before the key of the subjects of pushes, see pushPrefix
	mirror Mirror // nil when there is none; set by Feed, before the first watcher

	checks leaderCheck

	// Era counts the streams that the bucket has had, as far as the hub knows. The numbers in an answer to a request of an earlier era may be
	// those of a former stream.
	Era atomic.Uint64

	wake chan struct{} // has an element when the poller is to look again
	cut  chan struct{} // closed when the connection is closed for good
	done chan struct{} // closed when the poller has ended

	mu      sync.Mutex // guards the fields below
	started bool       // the poller runs
	stop    func()     // ends the subscription

	// Keys.
	keys    map[string]*watched
	pending *Watch  // the first of a list of watches whose keys the poller adds
	due     dueHeap // of keys
	regular int     // the number of keys that are polled regularly

	// Pushes and reads.
	gaps      gapTracker
	lastHeard time.Time // when the bucket last answered or pushed
	reads     uint64    // how many reads have begun
	until     time.Time // until then the poller sleeps, if nobody wakes it; in the past while it works
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
	err := h.start()
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
	err := h.start()
	if err == nil {
		w.resting = true
		h.place(w)
	}
	return err
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

// start prepares for another watcher: it subscribes to changes and starts the poller, once. It returns the reason that no watcher may be
// added, or nil. The caller holds mu.
func (h *Hub) start() error {
	if err := context.Cause(h.store.Closing); err != nil {
		return err
	}
	if len(h.keys) == 0 && h.pending == nil {
		h.lastHeard = time.Now() // the silence begins now: no request was sent before
	}
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
		e := h.store.entry(key, message, h.Era.Load())
		var v View
		if v, err = h.store.pushed(e); err == nil {
			h.update(&e, v, 0)
			return
		}
	}
	h.store.Log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
	h.readSoon(key)
}

// update delivers v, the view of e, to the watchers of its key, if it is later than the value that the hub knows. read is
// the number of the read that it comes from; 0 for a push.
func (h *Hub) update(e *Entry, v View, read uint64) {
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
	// A read that found no key may have missed the write that was pushed in the meantime.
	missed := read > 0 && read <= k.pushed && e.Revision == 0 && !k.expired(h.lastHeard)
	other := e.Revision == k.revision && e.Created.After(k.created) // the entry of a bucket that was recreated
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

// count records whether k is polled regularly. It is called after each change of its watchers. The caller holds mu.
func (h *Hub) count(k *watched) {
	rests := k.resting() || k.watchers.none()
	switch {
	case rests == k.rests:
		return
	case rests:
		h.regular--
	default:
		h.regular++
		if h.regular == busyThreshold+1 {
			h.startChecks()
			h.checkSoon()
		}
	}
	k.rests = rests
}

const (
	// PollEvery is the shortest time after which a lost push is noticed; the longest is twice as long.
	PollEvery = time.Second

	// restingPollEvery is the same for keys whose watchers rest: these learn of changes in other ways too.
	restingPollEvery = 10 * time.Second

	// expiryStep is the time between two reads of a key whose claim is over: the server removes it up to 350 ms late.
	expiryStep = 50 * time.Millisecond

	// expiryGrace is the time after which that key is read no more often than others.
	expiryGrace = 2 * time.Second

	// batchWindow is the time by which a key is read before it is due, to be read with others.
	batchWindow = 10 * time.Millisecond
)

// nextRead returns the time of the next read of the key if nothing is pushed: never so soon that the key would be due already.
func (k *watched) nextRead(now time.Time) time.Time {
	every := PollEvery
	if k.resting() {
		every = restingPollEvery
	}
	regular := now.Add(every + rand.N(every))
	if !k.view.Polled {
		return regular
	}
	switch expiry := k.view.Expires; {
	case expiry.IsZero() || now.After(expiry.Add(expiryGrace)):
		return regular
	case !now.Before(expiry):
		return now.Add(expiryStep)
	case expiry.Before(now.Add(batchWindow)):
		return now.Add(batchWindow)
	case expiry.Before(regular):
		return expiry
	default:
		return regular
	}
}

// resting reports whether all watchers of k rest.
func (k *watched) resting() bool {
	for w := range k.watchers.each {
		if !w.resting {
			return false
		}
	}
	return !k.watchers.none()
}

// Rest sets whether the watcher rests: it waits for no change that only a push or a read can show.
func (h *Hub) Rest(w *Watch, resting bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.resting = resting
	soon := time.Now().Add(PollEvery)
	for _, key := range w.Keys {
		k := h.keys[key]
		if k == nil {
			continue
		}
		h.count(k)
		if !resting && k.next.After(soon) {
			h.readAt(k, soon)
		}
	}
}

// readAt changes when k is read. The caller holds mu.
func (h *Hub) readAt(k *watched, at time.Time) {
	k.next = at
	heap.Fix(&h.due, k.index)
	if k.index == 0 {
		h.wakePoller()
	}
}

// readSoon makes the poller read the key at once.
func (h *Hub) readSoon(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k != nil {
		k.next, k.since = time.Time{}, h.reads+1
		k.asOf, k.floor = 0, h.gaps.applied
		heap.Fix(&h.due, k.index)
		h.wakePoller()
	}
}

// run is the poller: it reads keys when they are due, until the store closes.
func (h *Hub) run(status <-chan nats.Status) {
	defer close(h.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.store.Closing.Done():
			h.wakeAll()
			return
		case now := <-status:
			if now == nats.CLOSED {
				close(h.cut)
				h.wakeAll()
				<-h.store.Closing.Done()
				h.wakeAll()
				return
			}
			h.restart()
		case <-h.wake:
		case <-timer.C:
		}
		if keys, read := h.takeDue(); len(keys) > 0 {
			h.poll(keys, read)
		}
		timer.Reset(h.untilDue())
	}
}

// Over returns the reason that the hub delivers no more changes; nil while it does.
func (h *Hub) Over() error {
	if h.store.Closing.Err() != nil {
		return context.Cause(h.store.Closing)
	}
	select {
	case <-h.cut:
		return fmt.Errorf("kvlock: watch bucket %q: %w: %w", h.store.Bucket, ErrUnavailable, nats.ErrConnectionClosed)
	default:
		return nil
	}
}

// wakeAll makes all receivers check Over.
func (h *Hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placePending()
	for _, k := range h.due {
		for w := range k.watchers.each {
			w.To.Wake()
		}
	}
}

// takeDue returns the keys to read now, at most as many as one round trip reads, and the number of the read.
func (h *Hub) takeDue() (keys []string, read uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placePending()
	now := time.Now()
	until := now.Add(batchWindow)
	if len(h.due) > MaxRead && h.due[0].next.Before(until) {
		until = now.Add(PollEvery / 4) // the cost of a read for the server grows with the keys of the bucket, more than with those it returns
	}
	for len(keys) < MaxRead && len(h.due) > 0 && h.due[0].next.Before(until) {
		k := h.due[0]
		if !h.defers(k, now) {
			keys = append(keys, k.key)
		}
		if k.next = k.nextRead(now); k.next.Before(until) {
			until = k.next // when its claim ends, and not before
		}
		heap.Fix(&h.due, 0)
	}
	if len(keys) > 0 {
		h.reads++
	}
	return keys, h.reads
}

// poll reads keys and delivers their entries. An entry that is older than the last push comes from a replica that lags behind, unless the
// leader returns the same entry.
func (h *Hub) poll(keys []string, read uint64) {
	ctx, cancel := h.store.Bound(h.store.Closing, h.store.OpTimeout)
	defer cancel()
	entries, err := h.store.Read(ctx, keys)
	for i := 0; err == nil && i < len(entries); i++ {
		e := entries[i]
		if h.doubts(&e) {
			if e, err = h.store.Leader(ctx, e.Key); err != nil {
				break
			}
		}
		h.update(&e, h.store.opened(ctx, e), read)
	}
	if err != nil {
		h.store.Log.DebugContext(ctx, "kvlock: watched keys could not be read, trying again", "keys", len(keys), "error", err)
		h.unread(keys)
	}
}

// unread makes keys due again for which a watcher waits for its first value.
func (h *Hub) unread(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if k := h.keys[key]; k != nil && !k.served(0) {
			k.next = time.Now().Add(expiryStep)
			heap.Fix(&h.due, k.index)
		}
	}
}

// doubts reports whether e is older than the known entry, and the TTL of that entry does not explain it.
func (h *Hub) doubts(e *Entry) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[e.Key]
	return k != nil && k.known && e.Revision < k.revision && !(e.Revision == 0 && k.expired(time.Now()))
}

func (h *Hub) untilDue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.until = now.Add(time.Hour) // adding a key ends the wait
	if len(h.due) > 0 {
		h.until = h.due[0].next
	}
	return max(0, h.until.Sub(now))
}

// dueHeap orders keys by the time of their next read.
type dueHeap []*watched

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	k := x.(*watched) //nolint:forcetypeassert // only place pushes
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

// pushPrefix returns the part before the key of the subjects under which a bucket republishes its changes, as kvlock.StreamConfig sets
// them, with any destination. It returns "" when the bucket does not republish all keys unchanged: then nobody can wait for a change.
func pushPrefix(prefix string, republish *jetstream.RePublish) string {
	if republish == nil || republish.HeadersOnly || republish.Source != ">" {
		return ""
	}
	root, found := strings.CutSuffix(republish.Destination, ">")
	if !found || strings.ContainsAny(root, "*{") {
		return ""
	}
	return root + prefix
}
