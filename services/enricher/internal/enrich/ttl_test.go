package enrich

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestTTL: how long a claim and each outcome are kept, to the second, by when the server lets them go.
func TestTTL(t *testing.T) {
	const week, day = 7 * 24 * time.Hour, 24 * time.Hour
	for name, c := range map[string]struct {
		far         *far
		least, most time.Duration
	}{
		"FOUND":     {&far{}, week * 9 / 10, week * 11 / 10},
		"NOT_FOUND": {&far{search: noVenue}, day * 9 / 10, day * 11 / 10},
		"AMBIGUOUS": {&far{search: twoVenues}, time.Minute, time.Minute},
		"ERROR":     {&far{search: failTimes(1000, errFar)}, time.Minute, time.Minute},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, c.far, func(cfg *Config) {
				if c.least > day { // a memory asks for changes every second
					cfg.MemoryBytes = -1
				}
			})
			stop := i.work(t)
			somewhere := place("Pizza House")
			somewhere.Address = ""
			i.ask(t, "req-1", []contracts.Restaurant{somewhere})
			i.told(t, "req-1")
			stop()
			slot, err := i.flight.Get(t.Context(), "wolt.id-Pizza-House")
			check.OK(t, err)
			results, err := i.Results(t.Context(), "wolt", contracts.EnrichRequest{Results: []contracts.Restaurant{somewhere, place("unknown")}})
			if r := results["id-Pizza-House"]; err != nil || len(results) != 1 || string(r.Outcome) != name || r.Matcher == "" {
				t.Errorf("results are %+v, %v, want one that is %s", results, err, name)
			}
			if slot.TTL < c.least || slot.TTL > c.most {
				t.Errorf("kept for %s, want %s to %s", slot.TTL, c.least, c.most)
			}
			elapse(slot.TTL - slot.Age() - time.Second)
			if slot, err = i.flight.Get(t.Context(), slot.Key); err != nil || slot.State != flight.Done {
				t.Errorf("a second before its time it is %v, %v", slot.State, err)
			}
			elapse(2 * time.Second)
			if slot, err = i.flight.Get(t.Context(), slot.Key); err != nil || slot.State != flight.Absent {
				t.Errorf("a second after its time it is %v, %v", slot.State, err)
			}
		})
	}
	natstest.RunBubble(t, "claim", func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		slot, err := i.flight.Get(t.Context(), "wolt.id-Pizza-House")
		if err != nil || slot.State != flight.Pending || slot.TTL != time.Minute {
			t.Errorf("claim is %+v, %v, want one of 60 s", slot, err)
		}
		elapse(time.Minute + time.Second)
		if slot, err = i.flight.Get(t.Context(), slot.Key); err != nil || slot.State != flight.Absent {
			t.Errorf("after 61 s it is %v, %v", slot.State, err)
		}
	})
}
