package kvlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Watcher tells how keys change, from [Flight.Watch]. It is used by one goroutine, and closed.
type Watcher struct {
	board *board
	keys  []string

	mu    sync.Mutex
	queue []string        // keys with news, oldest first
	news  map[string]Slot // the latest of each
	last  map[string]Slot
	ready chan struct{} // has an element while the queue may not be empty
}

// Watch starts to watch keys. The first Next of each key tells its state as it is; the later ones tell changes. Changes
// that follow each other faster than Next is called are told as one: the latest. Watch itself costs no round trip, the
// states of all keys one for each 512.
//
// All watchers of a Flight share one subscription to what the bucket republishes, and one timer: pushes can be lost, so
// every key is also read again after one to two seconds, when a claim that it saw expires, and after a reconnect. The
// values that it tells come from those pushes, so nobody but the server may be permitted to publish them.
func (f *Flight) Watch(keys ...string) (*Watcher, error) {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
	}
	w := newWatcher(f.board, keys)
	if err := f.board.add(w); err != nil {
		return nil, err
	}
	return w, nil
}

func newWatcher(b *board, keys []string) *Watcher {
	return &Watcher{board: b, keys: keys, news: map[string]Slot{}, last: map[string]Slot{}, ready: make(chan struct{}, 1)}
}

// Close ends the watching.
func (w *Watcher) Close() { w.board.remove(w) }

// Next waits for the next change and returns the key's slot. A failure that is gone at once is told as Failed if it ended
// a claim that was watched, though reads find the key absent. A key that is absent because its claim expired has
// revision 0.
//
// It returns the context's cause when that ends first, ErrClosed when the Flight closes, ErrUnavailable when the
// connection is closed for good, and ErrVersion for a record of a newer version.
func (w *Watcher) Next(ctx context.Context) (Slot, error) {
	slot, err := w.next(ctx, false)
	if slot.past {
		slot = slot.readable()
	}
	return slot, err
}

// next is Next, and with a bound also ends when nothing was heard of the bucket for long.
func (w *Watcher) next(ctx context.Context, bounded bool) (Slot, error) {
	var check <-chan time.Time
	if bounded {
		ticker := time.NewTicker(recheckEvery)
		defer ticker.Stop()
		check = ticker.C
	}
	for {
		if slot, ok := w.take(); ok {
			return slot, slot.err
		}
		select {
		case <-w.ready:
		case <-check:
			if silence := w.board.silence(); silence > w.board.patience() {
				return Slot{}, fmt.Errorf("kvlock: wait for %d keys: %w: nothing heard for %s", len(w.keys), ErrUnavailable, silence)
			}
		case <-ctx.Done():
			return Slot{}, context.Cause(ctx)
		case <-w.board.flight.ending.Done():
			return Slot{}, context.Cause(w.board.flight.ending)
		case <-w.board.cut:
			return Slot{}, fmt.Errorf("kvlock: wait for %d keys: %w: %w", len(w.keys), ErrUnavailable, nats.ErrConnectionClosed)
		}
	}
}

func (w *Watcher) take() (Slot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Slot{}, false
	}
	key := w.queue[0]
	w.queue = w.queue[1:]
	slot := w.news[key]
	delete(w.news, key)
	return slot, true
}

// tell queues slot when it is news: newer than what the watcher knows, or gone. A watcher that knows nothing yet is only
// told what was read after it came (first): what others know may be older than what its caller has just written.
func (w *Watcher) tell(slot Slot, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[slot.Key]
	if !known && !first || known && !slot.follows(last) {
		return
	}
	slot.past = slot.marker && (slot.released || !known || last.Claim != slot.Claim)
	w.last[slot.Key] = slot
	_, queued := w.news[slot.Key]
	switch {
	case queued:
	case known && last.readable().State == Absent && slot.readable().State == Absent:
		return // only the marker has gone
	default:
		w.queue = append(w.queue, slot.Key)
	}
	w.news[slot.Key] = slot
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *Watcher) knows(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.last[key]
	return known
}

// Wait waits until nobody computes key any more and returns what became of it: Done with the value, Failed with the
// reason, or Absent when the claim expired or was given back, or the key is free. It is woken by a push, and polls
// nothing. One round trip for the first look, which all waiters of a Flight share when they come together.
func (f *Flight) Wait(ctx context.Context, key string) (Slot, error) {
	return f.await(ctx, Slot{Key: key}, false)
}

// await is Wait for somebody who saw the key as seen. With a bound it gives up when nothing was heard for long of the
// bucket, and so not of the key.
func (f *Flight) await(ctx context.Context, seen Slot, bounded bool) (Slot, error) {
	w, err := f.Watch(seen.Key)
	if err != nil {
		return Slot{}, err
	}
	defer w.Close()
	for {
		slot, err := w.next(ctx, bounded)
		if err != nil {
			return Slot{}, err
		}
		if slot.State != Pending {
			return slot.awaited(seen.Claim), nil // a failure that was over before we came is not ours
		}
		seen = slot
	}
}
