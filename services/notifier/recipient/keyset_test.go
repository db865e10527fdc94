package recipient

import (
	"strconv"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Each key is new once, however many come after those that were expected, and the memory is that of twelve bytes for each that was.
func TestKeySet(t *testing.T) {
	t.Parallel()
	for _, expected := range []int{0, 1, 10_000, 100_000} {
		s := newKeySet(uint64(expected))
		check.Same(t, "slots", len(s.slots), expected+expected/2+8)
		for i := range 2 * 50_000 {
			there := s.add(strconv.Itoa(i % 50_000))
			check.Require(t, there == (i >= 50_000), "of %d: key %d was there: %t", expected, i, there)
		}
		check.Same(t, "keys", s.n, 50_000)
	}
	full := newKeySet(0)
	full.slots[len(full.slots)-1] = 1
	check.Same(t, "the last slot is taken: there", full.put(^uint64(0)), false)
	check.Same(t, "from the beginning", full.slots[0], ^uint64(0))
}
