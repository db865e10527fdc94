package flight_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
