package kvlock

import (
	"context"
	"sync"
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
// every key is also read again after one to two seconds, when a claim that it saw expires, and after a reconnect.
func (f *Flight) Watch(keys ...string) (*Watcher, error) {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
	}
	w := &Watcher{board: f.board, keys: keys, news: map[string]Slot{}, last: map[string]Slot{}, ready: make(chan struct{}, 1)}
	return w, f.board.add(w)
}

// Close ends the watching.
func (w *Watcher) Close() { w.board.remove(w) }

// Next waits for the next change and returns the key's slot. It returns the context's error when that ends first, and
// ErrClosed when the Flight closes. A key that is absent because its claim expired has revision 0.
func (w *Watcher) Next(ctx context.Context) (Slot, error) {
	for {
		if slot, ok := w.take(); ok {
			return slot, nil
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return Slot{}, context.Cause(ctx)
		case <-w.board.flight.ending.Done():
			return Slot{}, context.Cause(w.board.flight.ending)
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

// tell queues slot when it is news: newer than what the watcher knows, or gone.
func (w *Watcher) tell(slot Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[slot.Key]
	if known && !slot.follows(last) {
		return
	}
	w.last[slot.Key] = slot
	if _, queued := w.news[slot.Key]; !queued {
		w.queue = append(w.queue, slot.Key)
	}
	w.news[slot.Key] = slot
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// follows says that s is later than last. A key without a message has no revision to compare: it follows anything but
// another one without.
func (s Slot) follows(last Slot) bool {
	if s.Revision == 0 {
		return last.Revision != 0
	}
	return s.Revision > last.Revision
}

// Wait waits until nobody computes key any more and returns what became of it: Done with the value, Failed with the
// reason, or Absent when the claim expired or the key is free. It is woken by a push, and polls nothing. One round trip
// for the first look, which all waiters of a Flight share when they come together.
func (f *Flight) Wait(ctx context.Context, key string) (Slot, error) {
	w, err := f.Watch(key)
	if err != nil {
		return Slot{}, err
	}
	defer w.Close()
	pending := false
	for {
		slot, err := w.Next(ctx)
		switch {
		case err != nil:
			return Slot{}, err
		case slot.State == Pending:
			pending = true
		case !pending:
			return slot.readable(), nil // a failure that was over before we came is not ours
		default:
			return slot, nil
		}
	}
}
