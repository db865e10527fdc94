package answer

import (
	"maps"
	"slices"
	"sync"

	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

// maxRecent is the number of attempts that a worker remembers: 22 KiB and their texts.
const maxRecent = 200

// Recent are the last attempts of a worker. The zero value has none.
type Recent struct {
	mu    sync.Mutex
	ended map[string]uint64 // by outcome
	next  int               // the place of the next attempt: in a full ring, of the oldest
	ring  []inspect.Attempt
}

// Add adds an attempt that has ended.
func (r *Recent) Add(a inspect.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = make(map[string]uint64)
	}
	r.ended[a.Outcome]++
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, a)
		return
	}
	r.ring[r.next] = a
	r.next = (r.next + 1) % maxRecent
}

// Latest returns the attempts, the latest first.
func (r *Recent) Latest() []inspect.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(slices.Clone(r.ring[r.next:]), r.ring[:r.next]...)
	slices.Reverse(all)
	return all
}

// counted returns the number of attempts with each outcome.
func (r *Recent) counted() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]uint64, len(r.ended))
	maps.Copy(all, r.ended)
	return all
}
