package recipient

import (
	"hash/maphash"
	"math/bits"
)

// keySet is a set of keys that holds eight bytes of each: at most a key that is not there is taken for one that is, which of a million
// has one chance in 18 million million. A map takes more than twice the memory. The zero value is not ready to use.
type keySet struct {
	n     int
	seed  maphash.Seed
	slots []uint64 // by hash, each in the first that is free; 0 is a free one
}

// newKeySet returns a set that does not grow before it has so many keys.
func newKeySet(size uint64) keySet {
	return keySet{seed: maphash.MakeSeed(), slots: make([]uint64, size+size/2+8)}
}

// add adds a key, and reports whether it was there.
func (s *keySet) add(key string) bool {
	if 4*s.n > 3*len(s.slots) {
		old := s.slots
		s.slots, s.n = make([]uint64, 2*len(old)), 0
		for _, hash := range old {
			if hash != 0 {
				s.put(hash)
			}
		}
	}
	return s.put(max(maphash.String(s.seed, key), 1))
}

func (s *keySet) put(hash uint64) (there bool) {
	at, _ := bits.Mul64(hash, uint64(len(s.slots)))
	for ; s.slots[at] != 0; at++ {
		if s.slots[at] == hash {
			return true
		}
		if at+1 == uint64(len(s.slots)) {
			at = ^uint64(0) // from the beginning
		}
	}
	s.slots[at] = hash
	s.n++
	return false
}
