package kvlock

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// nextRead is when to look at the key again though nothing was pushed: never so soon that it would be due already.
func (k *watched) nextRead(now time.Time) time.Time {
	regular := now.Add(recheckEvery + rand.N(recheckEvery)) //nolint:gosec // spreads reads, guards nothing
	if k.last.State != Pending {
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

// run reads keys when they are due, until the Flight closes.
func (b *board) run(status <-chan nats.Status) {
	defer close(b.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.flight.ending.Done():
			return
		case now := <-status:
			if now == nats.CLOSED {
				close(b.cut)
				<-b.flight.ending.Done()
				return
			}
			b.allDue()
		case <-b.wake:
		case <-timer.C:
		}
		if keys, read := b.takeDue(); len(keys) > 0 {
			b.readAgain(keys, read)
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

// takeDue returns the keys to read now, at most as many as one round trip reads, and the number of the read.
func (b *board) takeDue() (keys []string, read uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for len(keys) < directget.MaxSubjects && len(b.due) > 0 && b.due[0].next.Before(now.Add(together)) {
		k := b.due[0]
		k.next = k.nextRead(now)
		heap.Fix(&b.due, 0)
		keys = append(keys, k.key)
	}
	if len(keys) > 0 {
		b.reads++
	}
	return keys, b.reads
}

// readAgain reads keys and tells what it finds. What is older than what was pushed comes from a replica that lags
// behind, unless the leader says the same.
func (b *board) readAgain(keys []string, read uint64) {
	ctx, cancel := b.flight.bound(b.flight.ending)
	defer cancel()
	slots, err := b.flight.read(ctx, keys)
	for i := 0; err == nil && i < len(slots); i++ {
		slot := slots[i]
		if b.doubts(slot) {
			if slot, err = b.flight.leader(ctx, slot.Key); err != nil {
				break
			}
		}
		b.tell(slot, read)
	}
	if err != nil {
		b.flight.log.DebugContext(ctx, "kvlock: watched keys could not be read, trying again", "keys", len(keys), "error", err)
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
	return k != nil && k.seen && slot.Revision < k.last.Revision && !(slot.Revision == 0 && k.last.over(time.Now()))
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
