package compress

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is n bytes that compress, to about a third.
func text(n int) []byte {
	const words = "the quick brown fox jumps over a lazy dog "
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]byte, 0, n+len(words))
	for len(out) < n {
		from := rnd.IntN(len(words))
		out = append(out, words[from:from+rnd.IntN(len(words)-from)+1]...)
	}
	return out[:n]
}

func TestCompressionIsUndone(t *testing.T) {
	t.Parallel()
	c := New()
	for _, n := range []int{0, 1, 2, 255, 256, 257, 4096, 65535, 65536, 128<<10 - 1, 128 << 10, 128<<10 + 1, 1 << 20, 5<<20 + 3} {
		for name, value := range map[string][]byte{"text": text(n), "zeros": make([]byte, n)} {
			data, _, err := c.Compress(value)
			check.OK(t, err)
			got, err := c.Decompress(data, n)
			check.That(t, err == nil && bytes.Equal(got, value), "%d bytes of %s became %d: %v", n, name, len(got), err)
			for _, wrong := range []int{n - 1, n + 1} {
				if wrong < 0 {
					continue
				}
				got, err := c.Decompress(data, wrong)
				check.That(t, errors.Is(err, ErrCorrupt), "%d bytes of %s read as %d: %d bytes, %v", n, name, wrong, len(got), err)
			}
		}
	}
}

// A value that unpacks to more than its record states takes no more memory than stated.
func TestBombTakesNoMemory(t *testing.T) {
	const stated = 1 << 10
	c := New()
	bomb, _, err := c.Compress(make([]byte, 256<<20))
	check.OK(t, err)
	nested := bytes.Repeat(bomb, 4) // frames may follow each other
	check.ErrorIs(t, check.Err(c.Decompress(bomb, stated)), ErrCorrupt)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		check.ErrorIs(t, check.Err(c.Decompress(nested, stated)), ErrCorrupt)
	}
	runtime.ReadMemStats(&after)
	grown := after.TotalAlloc - before.TotalAlloc
	check.That(t, grown <= 4<<20, "10 bombs took %d bytes", grown)
}
