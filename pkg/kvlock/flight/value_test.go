package flight

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

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
	c := newCodec()
	for _, n := range []int{0, 1, 2, 255, 256, 257, 4096, 65535, 65536, 128<<10 - 1, 128 << 10, 128<<10 + 1, 1 << 20, 5<<20 + 3} {
		for name, value := range map[string][]byte{"text": text(n), "zeros": make([]byte, n)} {
			data, err := c.compress(value)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.decompress(data, n)
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("%d bytes of %s became %d: %v", n, name, len(got), err)
			}
			for _, wrong := range []int{n - 1, n + 1} {
				if wrong < 0 {
					continue
				}
				if got, err := c.decompress(data, wrong); !errors.Is(err, errBroken) {
					t.Errorf("%d bytes of %s read as %d: %d bytes, %v", n, name, wrong, len(got), err)
				}
			}
		}
	}
}

// What stands for more than its record says costs no more memory than that.
func TestBombTakesNoMemory(t *testing.T) { //nolint:paralleltest // measures the memory of the process
	const stated = 1 << 10
	c := newCodec()
	bomb, err := c.compress(make([]byte, 256<<20))
	if err != nil {
		t.Fatal(err)
	}
	nested := bytes.Repeat(bomb, 4) // frames may follow each other
	if _, err := c.decompress(bomb, stated); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		if _, err := c.decompress(nested, stated); !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("10 bombs took %d bytes", grown)
	}
}

// Callers that want a value at the same time open it once; a large one is not kept after the last caller.
func TestContentIsOpenedOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{keptOpen, keptOpen + 1} {
		f := &Flight{codec: newCodec()}
		data, err := f.codec.compress(text(n))
		if err != nil {
			t.Fatal(err)
		}
		c := packed{Codec: codecZstd, Size: n}.content(data)
		const users = 50
		c.turn <- struct{}{}
		var all sync.WaitGroup
		values := make([][]byte, users)
		for i := range users {
			c.enter() // so that none of them is the last before all came
			all.Go(func() {
				defer c.leave()
				values[i], _, _ = c.open(context.WithoutCancel(t.Context()), f, "k") //nolint:errcheck // compared below
			})
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.open(ended, f, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		<-c.turn
		all.Wait()
		for i := range values {
			if len(values[i]) != n || &values[i][0] != &values[0][0] {
				t.Fatalf("caller %d has a value of its own, of %d bytes", i, len(values[i]))
			}
		}
		if kept := c.value != nil; kept != (n <= keptOpen) || c.users != 0 {
			t.Errorf("%d bytes: kept is %v, with %d users", n, kept, c.users)
		}
	}
}

// Each caller that finds a value broken gets an error; only the first reports it.
func TestBrokenContentIsToldOnce(t *testing.T) {
	t.Parallel()
	f := &Flight{codec: newCodec()}
	c := packed{Codec: codecZstd, Size: 7}.content([]byte("no frame"))
	for i := range 3 {
		if value, first, err := c.open(t.Context(), f, "k"); !errors.Is(err, errBroken) || first != (i == 0) || value != nil {
			t.Errorf("call %d: got %q, %v, %v", i, value, first, err)
		}
	}
}

// For any stored bytes, the result has the stated size or is refused, and takes no memory beyond that.
func FuzzDecompress(f *testing.F) {
	c := newCodec()
	for _, n := range []int{0, 1, 300, 5000} {
		data, err := c.compress(text(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, n)
		f.Add(data[:len(data)/2], n)
		f.Add(data, n/2)
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, 10)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = int(uint(size) % (1 << 16))
		value, err := c.decompress(data, size)
		switch {
		case err != nil && (value != nil || !errors.Is(err, errBroken)):
			t.Errorf("got %d bytes and %v", len(value), err)
		case err == nil && len(value) != size:
			t.Errorf("got %d bytes instead of %d", len(value), size)
		}
	})
}

// The hot path: what compressing and opening allocate.
func BenchmarkCompress(b *testing.B) {
	c := newCodec()
	for _, size := range []struct {
		name string
		n    int
	}{{"4kB", 4 << 10}, {"100kB", 100 << 10}} {
		value := text(size.n)
		data, err := c.compress(value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(size.name+"/compress", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size.n))
			for b.Loop() {
				_, _ = c.compress(value) //nolint:errcheck // it worked before
			}
		})
		b.Run(size.name+"/decompress", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size.n))
			for b.Loop() {
				_, _ = c.decompress(data, size.n) //nolint:errcheck // it worked before
			}
		})
	}
}

// What becomes part of a subject is one token, and what is believed of sizes has a bound.
func TestReferenceOfAnObject(t *testing.T) {
	t.Parallel()
	good := object{Bucket: "attic", Digest: "SHA-256=x", Name: "c-1-n", Size: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "c", "c-1", "c-1-", "-1-n", "c--n", "c-1-n-m", "c.d-1-n", "c-*-n", "c-1->", "c-1-n.d", "c-1-n d", "c-1-\n"} {
		bad := good
		bad.Name = name
		if bad.check() == nil {
			t.Errorf("name %q is taken", name)
		}
	}
	for _, bad := range []object{
		{Bucket: "", Name: good.Name, Size: 1},
		{Bucket: "a.b", Name: good.Name, Size: 1},
		{Bucket: ">", Name: good.Name, Size: 1},
		{Bucket: "attic", Name: good.Name},
		{Bucket: "attic", Name: good.Name, Size: -1},
		{Bucket: "attic", Name: good.Name, Size: maxValue + 1},
	} {
		if bad.check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
