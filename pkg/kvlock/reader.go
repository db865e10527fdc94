package kvlock

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// nextRead is when to look at the key again though nothing was pushed: never so soon that it would be due already.
func (k *watched) nextRead(now time.Time) time.Time {
	every := recheckEvery
	if k.resting() {
		every = restingEvery
	}
	regular := now.Add(every + rand.N(every)) //nolint:gosec // spreads reads, guards nothing
	if k.last == nil || k.last.State != Pending {
		return regular
	}
	switch expiry := k.last.expiry(); {
	case expiry.IsZero() || now.After(expiry.Add(expiryGrace)):
		return regular
	case !now.Before(expiry):
		return now.Add(expiryStep)
	case expiry.Before(now.Add(together)):
		return now.Add(together)
	case expiry.Before(regular):
		return expiry
	default:
		return regular
	}
}

// resting says that no watcher of k waits for something that only a push or a read can tell.
func (k *watched) resting() bool {
	for w := range k.watchers.each {
		if !w.resting {
			return false
		}
	}
	return !k.watchers.none()
}

// rest says whether the watcher waits for nothing that only a push or a read can tell.
func (w *Watcher) rest(resting bool) {
	b := w.board
	b.mu.Lock()
	defer b.mu.Unlock()
	w.resting = resting
	soon := time.Now().Add(recheckEvery)
	for _, key := range w.keys {
		k := b.keys[key]
		if k == nil {
			continue
		}
		b.count(k)
		if !resting && k.next.After(soon) {
			b.readAt(k, soon)
		}
	}
}

// readAt changes when k is read. It is called with mu held.
func (b *board) readAt(k *watched, at time.Time) {
	k.next = at
	heap.Fix(&b.due, k.index)
	if k.index == 0 {
		b.nudge()
	}
}

// run reads keys when they are due, until the Flight closes.
func (b *board) run(status <-chan nats.Status) {
	defer close(b.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.store.ending.Done():
			b.wakeAll()
			return
		case now := <-status:
			if now == nats.CLOSED {
				close(b.cut)
				b.wakeAll()
				<-b.store.ending.Done()
				b.wakeAll()
				return
			}
			b.restart()
		case <-b.wake:
		case <-timer.C:
		}
		if keys, read := b.takeDue(); len(keys) > 0 {
			b.readAgain(keys, read)
		}
		timer.Reset(b.untilDue())
	}
}

// over says why nothing is told any more, if that is so.
func (b *board) over() error {
	if b.store.ending.Err() != nil {
		return context.Cause(b.store.ending)
	}
	select {
	case <-b.cut:
		return fmt.Errorf("kvlock: watch bucket %q: %w: %w", b.store.bucket, ErrUnavailable, nats.ErrConnectionClosed)
	default:
		return nil
	}
}

// wakeAll has all watchers look whether it is over.
func (b *board) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	for _, k := range b.due {
		for w := range k.watchers.each {
			w.wake()
		}
	}
}

// takeDue returns the keys to read now, at most as many as one round trip reads, and the number of the read.
func (b *board) takeDue() (keys []string, read uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	now := time.Now()
	until := now.Add(together)
	if len(b.due) > directget.MaxSubjects && b.due[0].next.Before(until) {
		until = now.Add(recheckEvery / 4) // a read costs the server more for the keys there are than for those it returns
	}
	for len(keys) < directget.MaxSubjects && len(b.due) > 0 && b.due[0].next.Before(until) {
		k := b.due[0]
		if !b.putsOff(k, now) {
			keys = append(keys, k.key)
		}
		if k.next = k.nextRead(now); k.next.Before(until) {
			until = k.next // as its claim ends, and not before
		}
		heap.Fix(&b.due, 0)
	}
	if len(keys) > 0 {
		b.reads++
	}
	return keys, b.reads
}

// readAgain reads keys and tells what it finds. What is older than what was pushed comes from a replica that lags
// behind, unless the leader says the same.
func (b *board) readAgain(keys []string, read uint64) {
	ctx, cancel := b.store.bound(b.store.ending)
	defer cancel()
	slots, err := b.store.read(ctx, keys)
	for i := 0; err == nil && i < len(slots); i++ {
		slot := slots[i]
		if b.doubts(slot) {
			if slot, err = b.store.leader(ctx, slot.Key); err != nil {
				break
			}
		}
		b.tell(slot, read)
	}
	if err != nil {
		b.store.log.DebugContext(ctx, "kvlock: watched keys could not be read, trying again", "keys", len(keys), "error", err)
		b.unread(keys)
	}
}

// unread has those keys read again that somebody waits to hear of for the first time.
func (b *board) unread(keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		if k := b.keys[key]; k != nil && !k.served(0) {
			k.next = time.Now().Add(expiryStep)
			heap.Fix(&b.due, k.index)
		}
	}
}

// doubts says that slot is older than what is known already, and that its TTL does not explain it.
func (b *board) doubts(slot Slot) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[slot.Key]
	return k != nil && k.last != nil && slot.Revision < k.last.Revision && !(slot.Revision == 0 && k.last.over(time.Now()))
}

func (b *board) untilDue() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.until = now.Add(time.Hour) // whoever adds a key ends the wait
	if len(b.due) > 0 {
		b.until = b.due[0].next
	}
	return max(0, b.until.Sub(now))
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
