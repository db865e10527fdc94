package flight_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// benchBed is a server behind TCP on the loopback, as a process of its own would be, with its files in memory.
func benchBed(b *testing.B) (f, g *flight.Flight) {
	b.Helper()
	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen, c.Memory = true, true })
	bedOn(b, srv, kvlock.BucketConfig{Bucket: bucket})
	_, js := natstest.ConnectURL(b, srv.URL())
	_, other := natstest.ConnectURL(b, srv.URL())
	return flightOn(b, js, flight.Config{}), flightOn(b, other, flight.Config{})
}

// venue is a value of the size that the enricher stores.
var venue = make([]byte, 300)

func store(b *testing.B, f *flight.Flight, n int) []string {
	b.Helper()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("wolt.place%d", i)
		complete(b, begin(b, f, keys[i], flight.BeginOptions{}), string(venue))
	}
	return keys
}

func BenchmarkBeginComplete(b *testing.B) {
	f, _ := benchBed(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		c, err := f.Begin(b.Context(), fmt.Sprintf("k%d", i), flight.BeginOptions{})
		check.OK(b, err)
		check.OK(b, check.Err(c.Complete(b.Context(), venue, 0)))
	}
}

func BenchmarkDo(b *testing.B) {
	fn := func(context.Context) ([]byte, error) { return venue, nil }
	b.Run("hit", func(b *testing.B) {
		f, _ := benchBed(b)
		key := store(b, f, 1)[0]
		b.ReportAllocs()
		for b.Loop() {
			check.OK(b, check.Err(f.Do(b.Context(), key, fn, flight.DoOptions{})))
		}
	})
	b.Run("miss", func(b *testing.B) {
		f, _ := benchBed(b)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			check.OK(b, check.Err(f.Do(b.Context(), fmt.Sprintf("k%d", i), fn, flight.DoOptions{})))
		}
	})
	b.Run("hit-parallel", func(b *testing.B) {
		f, _ := benchBed(b)
		keys := store(b, f, 64)
		var next atomic.Int64
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				check.Is(b, check.Err(f.Do(b.Context(), keys[next.Add(1)%64], fn, flight.DoOptions{})), nil)
			}
		})
	})
}

// BenchmarkCompleteGet stores a value and has another process read it.
func BenchmarkCompleteGet(b *testing.B) {
	for _, bb := range []struct {
		name  string
		value []byte
		cfg   flight.Config
	}{
		{"1kB", document(1 << 10), flight.Config{}},
		{"1kB-compressed", document(1 << 10), flight.Config{CompressAbove: 1}},
		{"100kB-raw", document(100 << 10), flight.Config{CompressAbove: -1}},
		{"100kB-compressed", document(100 << 10), flight.Config{}},
		{"5MB-object", noise(5 << 20), largeValues},
		{"5MB-JSON", document(5 << 20), largeValues},
	} {
		b.Run(bb.name, func(b *testing.B) {
			srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen, c.Memory = true, true })
			bed := bedOn(b, srv, kvlock.BucketConfig{Bucket: bucket, Storage: jetstream.MemoryStorage})
			_, js := natstest.ConnectURL(b, srv.URL())
			_, other := natstest.ConnectURL(b, srv.URL())
			check.OK(b, flight.CreateLargeValueBucket(b.Context(), js, kvlock.BucketConfig{
				Bucket: attic, MaxBytes: 256 << 20, Storage: jetstream.MemoryStorage,
			}))
			f, g := flightOn(b, js, bb.cfg), flightOn(b, other, flight.Config{})
			ctx := b.Context()
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.value)))
			for b.Loop() {
				c, err := f.Begin(ctx, "k", flight.BeginOptions{})
				check.OK(b, err)
				check.OK(b, check.Err(c.Complete(ctx, bb.value, time.Hour)))
				if s, err := g.Get(ctx, "k"); err != nil || len(s.Value) != len(bb.value) {
					b.Fatal(s.State, err)
				}
				b.StopTimer()
				check.OK(b, f.Invalidate(ctx, "k"))
				if bb.cfg.LargeValueBucket != "" {
					check.OK(b, bed.largeValueStream(b).Purge(ctx))
				}
				b.StartTimer()
			}
		})
	}
}

// benchMemory is benchBed with a memory in f.
func benchMemory(b *testing.B, size int64) (f, g *flight.Flight) {
	b.Helper()
	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen, c.Memory = true, true })
	bedOn(b, srv, kvlock.BucketConfig{Bucket: bucket})
	_, js := natstest.ConnectURL(b, srv.URL())
	_, other := natstest.ConnectURL(b, srv.URL())
	return flightOn(b, js, flight.Config{Memory: flight.MemoryConfig{MaxBytes: size}}), flightOn(b, other, flight.Config{})
}

func BenchmarkMemoryHit(b *testing.B) {
	f, g := benchMemory(b, 1<<20)
	keys := store(b, g, 64)
	check.OK(b, check.Err(f.GetMany(b.Context(), keys)))
	hit := map[string]func(key string) error{
		"Get": func(key string) error { return check.Err(f.Get(b.Context(), key)) },
		"Do":  func(key string) error { return check.Err(f.Do(b.Context(), key, nil, flight.DoOptions{})) },
	}
	for _, name := range []string{"Get", "Do"} {
		for _, n := range []int{1, len(keys)} {
			b.Run(fmt.Sprintf("%s/%d-keys", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						check.Is(b, hit[name](keys[i%n]), nil)
					}
				})
			})
		}
	}
}

// Half of the keys are in memory, and the other half never is.
func BenchmarkGetManyHalfInMemory(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, g := benchMemory(b, 1<<20)
			keys := store(b, g, n/2)
			check.OK(b, check.Err(f.GetMany(b.Context(), keys)))
			for i := range n / 2 {
				keys = append(keys, fmt.Sprintf("pending%d", i))
				begin(b, g, keys[len(keys)-1], flight.BeginOptions{TTL: time.Hour})
			}
			b.ReportAllocs()
			for b.Loop() {
				check.OK(b, check.Err(f.GetMany(b.Context(), keys)))
			}
		})
	}
}

// How much memory an entry takes, beside its key and value, and how much of that is counted.
func BenchmarkMemoryPerEntry(b *testing.B) {
	const n = 50_000
	f, g := benchMemory(b, 1<<30)
	keys := store(b, g, n)
	read := func() {
		for i := 0; i < n; i += 500 {
			check.OK(b, check.Err(f.GetMany(b.Context(), keys[i:i+500])))
		}
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	read()
	after := heap()
	s := f.Stats().Memory
	if s.Entries != n {
		b.Fatalf("%+v", s)
	}
	for b.Loop() {
		runtime.KeepAlive(f)
	}
	b.ReportMetric((after-before)/n-float64(len(venue)+len(keys[n/2])), "heap-B/entry")
	b.ReportMetric(float64(s.Bytes)/n-float64(len(venue)+len(keys[n/2])), "counted-B/entry")
}
