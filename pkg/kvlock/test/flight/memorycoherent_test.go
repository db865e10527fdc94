package flight_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// Three processes read and write, one of them with a memory that is too small for all; pushes get lost all the time. No
// reader gets what was replaced longer ago than the bound, nor anything older than it had before.
func TestMemoryIsCoherent(t *testing.T) {
	of := crash.Random(t)
	inBubble(t, func(t *testing.T, b *bed) {
		r := of(0)
		var flights []*flight.Flight
		for i := range 3 {
			p := natstest.NewProxy(t, b.Srv)
			lossy := of(uint64(1 + i))
			p.Filter(losing(func(f natstest.Frame) bool { return isPush(f) && lossy.IntN(20) == 0 }))
			cfg := remembering()
			cfg.Memory.Eviction = flight.Eviction(i % 2)
			if i == 2 {
				cfg.Memory.MaxBytes = 4 << 10
			}
			flights = append(flights, b.Flight(t, cfg, p.Through()))
		}
		type stored struct {
			revision uint64
			at       time.Time
		}
		newest := map[string][]stored{} // what each key held, as acknowledged
		seen := [3]map[string]uint64{{}, {}, {}}
		for range 20_000 {
			pass(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
			i, key := r.IntN(3), fmt.Sprintf("%c.%d", 'a'+r.IntN(3), r.IntN(8))
			f := flights[i]
			switch r.IntN(20) {
			case 0:
				s := replace(t, f, key, strings.Repeat("v", r.IntN(300)))
				newest[key] = append(newest[key], stored{s.Revision, time.Now()})
			case 1:
				check.OK(t, f.Invalidate(t.Context(), key))
				newest[key] = append(newest[key], stored{b.Present(t, key).Sequence, time.Now()})
			case 2:
				if r.IntN(10) == 0 {
					check.OK(t, check.Err(f.Purge(t.Context(), key[:1])))
					for k := range newest {
						if k[0] == key[0] {
							newest[k] = append(newest[k], stored{b.Present(t, "_kv_purge").Sequence, time.Now()})
						}
					}
				}
			default:
				s := get(t, f, key)
				if s.State != flight.Done {
					continue
				}
				check.Require(t, s.Revision >= seen[i][key], "process %d reads %s at %d after %d", i, key, s.Revision, seen[i][key])
				seen[i][key] = s.Revision
				for _, w := range newest[key] {
					if age := time.Since(w.at); w.revision > s.Revision && age > memoryBound {
						t.Fatalf("process %d reads %s at %d, replaced at %d %s ago", i, key, s.Revision, w.revision, age)
					}
				}
			}
		}
		hits := uint64(0)
		for _, f := range flights {
			s := f.Stats().Memory
			t.Logf("%+v", s)
			hits += s.Hits
		}
		check.That(t, hits >= 1000, "%d hits: nothing was tested", hits)
	})
}
