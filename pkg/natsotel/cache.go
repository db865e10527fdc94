package natsotel

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache keeps what is made once, for few keys. It takes two thirds of the time of a sync.Map, whose generic map each importer of
// this package would compile once more.
type cache[K comparable, V any] struct {
	mu  sync.Mutex              // held to replace the map
	all atomic.Pointer[map[K]V] // never changed
}

func newCache[K comparable, V any]() *cache[K, V] {
	c := &cache[K, V]{}
	c.all.Store(&map[K]V{})
	return c
}

func (c *cache[K, V]) load(key K) (value V, ok bool) {
	value, ok = (*c.all.Load())[key]
	return value, ok
}

func (c *cache[K, V]) store(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(*c.all.Load())
	all[key] = value
	c.all.Store(&all)
}
