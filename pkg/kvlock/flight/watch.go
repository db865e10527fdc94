package flight

import (
	"context"
	"errors"
	"sync"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Watcher returns the changes of keys, from [Flight.Watch]. One goroutine uses it, and closes it.
type Watcher struct {
	flight *Flight
	watch  kv.Watch

	mu    sync.Mutex
	queue []string             // keys with changes to return, oldest first
	only  seenEntry            // the state of the key, where there is only one: there may be very many watchers of one key
	seen  map[string]seenEntry // the state of each key, where there are more
	ready chan struct{}        // has an element while the queue may not be empty; nil with
	wake  func()               // which is called then
	claim string               // the last claim that Wait saw
}

// seenEntry is the state of a key in a watcher.
type seenEntry struct {
	last *Entry // nil before the first entry
	news *Entry // the change that Next has not returned yet; nil when there is none
}

// Watch starts to watch keys. Next returns the present state of each key first, and its changes after that. If a key changes several times
// between two calls of Next, it returns the latest change. Watch itself costs no round trip; the states of the keys cost one for each 512.
//
// All watchers of a Flight share one subscription to the pushes of the bucket, and one timer. Pushes can be lost, so
// every key is also read again after one to two seconds, when a claim that the watcher saw expires, and after a
// reconnect. With more than 16 keys the leader is asked each second instead whether a push is missing. While none is missing, keys are
// read every 10 to 20 seconds. Values come from those pushes, so only the server may be permitted to publish them.
func (f *Flight) Watch(keys ...string) (*Watcher, error) {
	for _, key := range keys {
		if err := kv.CheckKey(key); err != nil {
			return nil, err
		}
	}
	w := newWatcher(f, keys, nil)
	if err := f.store.Hub.Add(&w.watch); err != nil {
		return nil, err
	}
	return w, nil
}

// newWatcher returns a watcher without adding it to the hub. wake is called instead of filling ready, if it is not nil.
func newWatcher(f *Flight, keys []string, wake func()) *Watcher {
	w := &Watcher{flight: f, wake: wake}
	if wake == nil {
		w.ready = make(chan struct{}, 1)
	}
	w.watch = kv.Watch{Keys: keys, To: (*receiver)(w)}
	if len(keys) != 1 {
		w.seen = make(map[string]seenEntry, len(keys))
	}
	return w
}

// of returns the state of key in the watcher, and know sets it. The caller holds mu.
func (w *Watcher) of(key string) seenEntry {
	if w.seen == nil {
		return w.only
	}
	return w.seen[key]
}

func (w *Watcher) know(key string, t seenEntry) {
	if w.seen == nil {
		w.only = t
		return
	}
	w.seen[key] = t
}

// Close ends the watching.
func (w *Watcher) Close() { w.flight.store.Hub.Remove(&w.watch) }

// Next waits for the next change and returns the key's entry. A failure that is not kept is returned as Failed if it ended a watched claim,
// though reads find the key absent. A key that is absent because its claim expired has revision 0.
//
// It returns the context's cause when the context ends first, ErrClosed when the Flight closes, ErrTooLarge for a value above
// Config.MaxValue, and ErrVersion for a record of a newer version. It returns ErrUnavailable when the connection is closed for good, or
// when a value cannot be fetched: the next call then tries again.
func (w *Watcher) Next(ctx context.Context) (Entry, error) {
	news, err := w.sleep(ctx)
	if err != nil {
		if news == nil {
			news = &Entry{}
		}
		return *news, err
	}
	entry := *news
	if entry.past {
		entry = entry.readable()
	}
	opened, err := w.flight.unseal(ctx, entry)
	if err != nil && !errors.Is(err, kvlock.ErrTooLarge) {
		w.again(&entry)
	}
	return opened, err
}

// errOwnerDead is returned when the owner's process is gone.
var errOwnerDead = errors.New("owner is gone")

// sleep waits for the next change. Thousands of goroutines may wait here at once, each with its own stack.
func (w *Watcher) sleep(ctx context.Context) (*Entry, error) {
	for {
		if entry, err := w.news(); entry != nil || err != nil {
			return entry, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// news returns the change that is ready, or the error for which no more changes come.
func (w *Watcher) news() (*Entry, error) {
	if entry := w.take(); entry != nil {
		return entry, entry.in().err
	}
	return nil, w.flight.store.Hub.Over()
}

// take returns the oldest change, or nil.
func (w *Watcher) take() *Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	key := w.queue[0]
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.queue = nil
	}
	t := w.of(key)
	w.know(key, seenEntry{last: t.last})
	return t.news
}

// again puts an entry back for the next call, unless there is a later one.
func (w *Watcher) again(entry *Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.of(entry.Key)
	if t.news != nil {
		return
	}
	w.know(entry.Key, seenEntry{last: t.last, news: entry})
	w.queue = append(w.queue, entry.Key)
}

// receiver is a Watcher as the hub sees it.
type receiver Watcher

// Deliver queues an entry when it is a change.
func (r *receiver) Deliver(value any, first bool) {
	(*Watcher)(r).note(value.(*Entry), first) //nolint:forcetypeassert // view makes nothing else
}

// note queues entry when it is newer than the watcher's entry, or when the key is gone. A watcher without an entry takes only an entry
// that was read after the watcher was added (first): an older entry may be from before the caller's own last write.
func (w *Watcher) note(entry *Entry, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.of(entry.Key)
	if t.last == nil && !first || t.last != nil && !entry.follows(t.last) {
		return
	}
	if entry.marker && (entry.released || t.last == nil || t.last.Claim != entry.Claim) {
		past := *entry
		past.past = true
		entry = &past
	}
	switch {
	case t.news != nil:
	case t.last != nil && t.last.readable().State == Absent && entry.readable().State == Absent:
		w.know(entry.Key, seenEntry{last: entry}) // only the marker has gone
		return
	default:
		w.queue = append(w.queue, entry.Key)
	}
	w.know(entry.Key, seenEntry{last: entry, news: entry})
	(*receiver)(w).Wake()
}

// Wake makes the caller look for changes.
func (r *receiver) Wake() {
	if r.wake != nil {
		r.wake()
		return
	}
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Knows reports whether the watcher has an entry of the key.
func (r *receiver) Knows(key string) bool {
	w := (*Watcher)(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(key).last != nil
}

// Wait waits while key is pending and returns its entry after that: Done with the value, Failed with the reason, or Absent when the claim
// expired or was given back, or the key was free. A push wakes the waiter; it does not poll. One round trip for the first read, which
// concurrent waiters of a Flight share.
func (f *Flight) Wait(ctx context.Context, key string) (Entry, error) {
	w, err := f.Watch(key)
	if err != nil {
		return Entry{}, err
	}
	defer w.Close()
	for {
		switch news, err := w.settled(); {
		case err != nil:
			return Entry{}, err
		case news != nil:
			entry, err := f.forWaiters(ctx, news, w.claim)
			if err != nil {
				return Entry{}, err
			}
			return *entry, nil
		}
		select { // no deeper: there may be thousands of these stacks, and a little more on each would double it
		case <-w.ready:
		case <-ctx.Done():
			return Entry{}, context.Cause(ctx)
		}
	}
}

// settled takes changes until the key is not pending, and returns that entry: nil when none has come yet.
func (w *Watcher) settled() (*Entry, error) {
	for {
		news, err := w.news()
		if err != nil || news == nil || news.State != Pending {
			return news, err
		}
		w.claim = news.Claim
	}
}

// forWaiters converts entry for the waiters for claim. They do not get a failure that was over before they came.
func (f *Flight) forWaiters(ctx context.Context, entry *Entry, claim string) (*Entry, error) {
	opened, err := f.unseal(ctx, entry.awaited(claim))
	if f.memory != nil {
		f.memory.remember(opened)
	}
	return &opened, err
}
