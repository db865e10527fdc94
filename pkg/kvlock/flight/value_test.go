package flight_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// document is JSON of about n bytes, which compresses well.
func document(n int) []byte {
	type place struct {
		ID   int      `json:"id"`
		Name string   `json:"name"`
		Lat  float64  `json:"lat"`
		Lon  float64  `json:"lon"`
		Tags []string `json:"tags"`
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var places []place
	for size := 0; size < n; size += 95 {
		places = append(places, place{
			ID: len(places), Name: fmt.Sprintf("Pizzeria %c%x", 'A'+rnd.IntN(26), rnd.Uint32()), Lat: rnd.Float64(), Lon: rnd.Float64(),
			Tags: []string{"restaurant", "delivery"}[:rnd.IntN(3)],
		})
	}
	data, err := json.Marshal(places)
	if err != nil {
		panic(err)
	}
	return data
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	data := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = rnd.Read(data) // it never fails
	return data
}

func completeBytes(t testing.TB, c *flight.Claim, value []byte) flight.Entry {
	t.Helper()
	s, err := c.Complete(t.Context(), value, 0)
	check.Require(t, err == nil, "complete %s with %d bytes: %v", c.Key(), len(value), err)
	check.That(t, bytes.Equal(s.Value, value), "Complete of %d bytes returned %d", len(value), len(s.Value))
	return s
}

// readEveryWay reads a key in all ways of the API.
func readEveryWay(t testing.TB, f *flight.Flight, key string, want []byte) {
	t.Helper()
	ways := map[string]func(ctx context.Context) (flight.Entry, error){
		"Get": func(ctx context.Context) (flight.Entry, error) { return f.Get(ctx, key) },
		"GetMany": func(ctx context.Context) (flight.Entry, error) {
			entries, err := f.GetMany(ctx, []string{"another", key, key})
			if err != nil {
				return flight.Entry{}, err
			}
			return entries[2], nil
		},
		"Wait": func(ctx context.Context) (flight.Entry, error) { return f.Wait(ctx, key) },
		"Watch": func(ctx context.Context) (flight.Entry, error) {
			w, err := f.Watch(key)
			if err != nil {
				return flight.Entry{}, err
			}
			defer w.Close()
			return w.Next(ctx)
		},
		"Begin": func(ctx context.Context) (flight.Entry, error) {
			_, err := f.Begin(ctx, key, flight.BeginOptions{})
			var taken *flight.TakenError
			if !errors.As(err, &taken) {
				return flight.Entry{}, fmt.Errorf("not taken: %w", err)
			}
			return taken.Entry, nil
		},
		"Do": func(ctx context.Context) (flight.Entry, error) {
			r, err := f.Do(ctx, key, func(context.Context) ([]byte, error) { return nil, errors.New("ran") }, flight.DoOptions{})
			return flight.Entry{State: flight.Done, Value: r.Value}, err
		},
	}
	for name, way := range ways {
		if s, err := way(testbed.Within(t)); err != nil || s.State != flight.Done || !bytes.Equal(s.Value, want) {
			t.Errorf("%s of %s: %s with %d bytes, %v; want %d", name, key, s.State, len(s.Value), err, len(want))
		}
	}
}

// A value of any size, stored in any form, is read as it was completed.
func TestValuesOfEverySize(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	flights := []*flight.Flight{b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})}
	sizes := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(4<<10-2, 4<<10+2), rapid.IntRange(0, 900<<10))
	wantEverySize(t, sizes, flights, flights)
}

// wantEverySize completes values of random sizes with any of the writers, and reads them with any of the readers.
func wantEverySize(t *testing.T, sizes *rapid.Generator[int], writers, readers []*flight.Flight) {
	t.Helper()
	i := 0
	rapid.Check(t, func(rt *rapid.T) {
		size := sizes.Draw(rt, "size")
		value := noise(size)
		if rapid.Bool().Draw(rt, "compressible") {
			value = document(size)[:size]
		}
		i++
		key := fmt.Sprintf("k%d", i)
		completeBytes(t, testbed.Begin(t, writers[rapid.IntRange(0, len(writers)-1).Draw(rt, "writer")], key, flight.BeginOptions{}), value)
		s := testbed.Get(t, readers[rapid.IntRange(0, len(readers)-1).Draw(rt, "reader")], key)
		if s.State != flight.Done || !bytes.Equal(s.Value, value) {
			rt.Errorf("%d bytes became %d, %s", size, len(s.Value), s.State)
		}
	})
}

// recordOf returns the first line of a record, and the data after it.
func recordOf(t testing.TB, b *testbed.Bed, key string) (meta map[string]any, data []byte) {
	t.Helper()
	line, data, _ := bytes.Cut(b.Present(t, key).Data, []byte("\n"))
	check.OK(t, json.Unmarshal(line, &meta))
	return meta, data
}

// A value that is small, or does not shrink, is stored as it is.
func TestWhatIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	for name, tt := range map[string]struct {
		value      []byte
		compressed bool
	}{
		"at the threshold":    {document(4 << 10)[:4<<10], false},
		"above the threshold": {document(4<<10 + 1)[:4<<10+1], true},
		"noise":               {noise(500 << 10), false},
		"empty":               {nil, false},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		f := b.Flight(t, flight.Config{})
		completeBytes(t, testbed.Begin(t, f, key, flight.BeginOptions{}), tt.value)
		meta, data := recordOf(t, b, key)
		how, _ := meta["value"].(map[string]any)
		compressed := how["codec"] == "zstd" && how["size"] == float64(len(tt.value))
		check.That(t, compressed == tt.compressed, "%s: %v", name, meta)
		check.That(t, tt.compressed || bytes.Equal(data, tt.value), "%s: %d bytes are stored of %d", name, len(data), len(tt.value))
		readEveryWay(t, f, key, tt.value)
	}
}

// put stores a record that only a test would write.
func put(t testing.TB, b *testbed.Bed, key, meta string, data []byte) {
	t.Helper()
	kv := check.Must(b.JS.KeyValue(t.Context(), testbed.Bucket))(t)
	record := `{"v":1,"state":"done","claim":"c","owner":"o",` + meta + "}\n"
	check.OK(t, check.Err(kv.Put(t.Context(), key, append([]byte(record), data...))))
}

func zstdOf(t testing.TB, value []byte) []byte {
	t.Helper()
	w := check.Must(zstd.NewWriter(nil))(t)
	defer w.Close()
	return w.EncodeAll(value, nil)
}

// A value that does not match its record is absent, however it is read, and reported once though many waited for it.
func TestCompressedValueThatIsCorrupt(t *testing.T) {
	t.Parallel()
	text := document(10 << 10)
	good := zstdOf(t, text)
	for name, tt := range map[string]struct {
		size int
		data []byte
	}{
		"a bomb":               {10, zstdOf(t, make([]byte, 64<<20))},
		"a bomb with its size": {2 << 30, zstdOf(t, make([]byte, 64<<20))},
		"cut short":            {len(text), good[:len(good)-1]},
		"smaller than stated":  {len(text) + 1, good},
		"no frame":             {len(text), []byte("no frame")},
		"nothing":              {len(text), nil},
		"a negative size":      {-1, good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, log := testbed.New(t), &testbed.Logged{}
			f := b.Flight(t, flight.Config{Logger: log.Logger()})
			meta := fmt.Sprintf(`"value":{"codec":"zstd","size":%d}`, tt.size)
			for way, read := range map[string]func(key string) (flight.Entry, error){
				"get":  func(key string) (flight.Entry, error) { return f.Get(t.Context(), key) },
				"wait": func(key string) (flight.Entry, error) { return f.Wait(testbed.Within(t), key) },
				"do": func(key string) (flight.Entry, error) {
					r, err := f.Do(t.Context(), key, func(context.Context) ([]byte, error) { return []byte("v"), nil }, flight.DoOptions{})
					check.That(t, err == nil && r.Outcome == flight.Computed, "Do got %+v, %v", r, err)
					return flight.Entry{}, err
				},
				"begin": func(key string) (flight.Entry, error) {
					completeBytes(t, testbed.Begin(t, f, key, flight.BeginOptions{}), []byte("v"))
					return flight.Entry{}, nil
				},
			} {
				put(t, b, way, meta, tt.data)
				s, err := read(way)
				check.That(t, err == nil && s.State == flight.Absent && s.Value == nil, "%s: got %s with %d bytes, %v", way, s.State, len(s.Value), err)
				testbed.Get(t, f, way)
			}
			n := log.Count("corrupt record is removed")
			check.That(t, n == 4, "reported %d times, want once for each key:\n%s", n, log.String())
		})
	}
}

// Waiters for a key get a push with a corrupt value together. It is reported once.
func TestManyWaitForACorruptValue(t *testing.T) {
	t.Parallel()
	b, log := testbed.New(t), &testbed.Logged{}
	f := b.Flight(t, flight.Config{Logger: log.Logger()})
	testbed.Begin(t, f, "k", flight.BeginOptions{})
	var waiting, all sync.WaitGroup
	for range 20 {
		waiting.Add(1)
		all.Go(func() {
			w := check.Must(f.Watch("k"))(t)
			defer w.Close()
			s, err := w.Next(testbed.Within(t))
			check.That(t, err == nil && s.State == flight.Pending, "got %+v, %v", s, err)
			waiting.Done()
			s, err = w.Next(testbed.Within(t))
			check.That(t, err == nil && s.State == flight.Absent, "got %+v, %v", s, err)
		})
	}
	waiting.Wait()
	put(t, b, "k", `"value":{"codec":"zstd","size":10}`, []byte("no frame"))
	all.Wait()
	n := log.Count("corrupt record is removed")
	check.That(t, n == 1, "reported %d times:\n%s", n, log.String())
}

// A codec of a later version is not taken for a corrupt record.
func TestUnknownCodecIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	put(t, b, "k", `"value":{"codec":"zstd2","size":3}`, []byte("abc"))
	before := b.Present(t, "k").Sequence
	check.ErrorIs(t, check.Err(f.Get(t.Context(), "k")), kvlock.ErrVersion)
	check.ErrorIs(t, check.Err(f.Begin(t.Context(), "k", flight.BeginOptions{})), kvlock.ErrVersion)
	check.Equal(t, b.Present(t, "k").Sequence, before, "revision")
}

// A value above the limit is neither stored nor read, and its record is left to processes that have a greater limit.
func TestValueAboveTheLimit(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	small, large := b.Flight(t, flight.Config{MaxValue: 100 << 10}), b.Flight(t, flight.Config{})
	c := testbed.Begin(t, small, "k", flight.BeginOptions{})
	check.ErrorIs(t, check.Err(c.Complete(t.Context(), make([]byte, 100<<10+1), 0)), kvlock.ErrTooLarge)
	completeBytes(t, c, make([]byte, 100<<10)) // the claim is still held

	value := make([]byte, 100<<10+1)
	completeBytes(t, testbed.Begin(t, large, "l", flight.BeginOptions{}), value)
	check.ErrorIs(t, check.Err(small.Get(t.Context(), "l")), kvlock.ErrTooLarge)
	check.ErrorIs(t, check.Err(small.Wait(testbed.Within(t), "l")), kvlock.ErrTooLarge)
	check.ErrorIs(t, check.Err(small.Begin(t.Context(), "l", flight.BeginOptions{})), kvlock.ErrTooLarge)
	readEveryWay(t, large, "l", value)
}
