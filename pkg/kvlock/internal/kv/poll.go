package kv

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
	ctx, cancel := h.store.Bound(h.store.Closing)
	defer cancel()
	entries, err := h.store.Read(ctx, keys)
	for i := 0; err == nil && i < len(entries); i++ {
		e := entries[i]
		if h.doubts(&e) {
			if e, err = h.store.Leader(ctx, e.Key); err != nil {
				break
			}
		}
		h.deliver(&e, h.store.opened(ctx, e), read)
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
