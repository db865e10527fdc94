package flight

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/internal/compress"
)

// Callers that want a value at the same time open it once; a large one is not kept after the last caller.
func TestContentIsOpenedOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{keptOpen, keptOpen + 1} {
		f := &Flight{codec: compress.New()}
		data, _, err := f.codec.Compress(make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		c := packed{Codec: compress.Zstd, Size: n}.content(data)
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
	f := &Flight{codec: compress.New()}
	c := packed{Codec: compress.Zstd, Size: 7}.content([]byte("no frame"))
	for i := range 3 {
		if value, first, err := c.open(t.Context(), f, "k"); !errors.Is(err, errBroken) || first != (i == 0) || value != nil {
			t.Errorf("call %d: got %q, %v, %v", i, value, first, err)
		}
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
