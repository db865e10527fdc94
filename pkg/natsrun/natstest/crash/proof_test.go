package crash

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A proof needs effects and faults, and no effect of which something is wrong.
func TestConclusions(t *testing.T) {
	t.Parallel()
	faults := map[string]int{"process killed": 1}
	check.OK(t, conclude(Result{Wanted: 1, Faults: faults}))
	for name, r := range map[string]Result{
		"no effect":    {Faults: faults},
		"no fault":     {Wanted: 1},
		"lost":         {Wanted: 1, Faults: faults, Lost: []string{"a"}},
		"unwanted":     {Wanted: 1, Faults: faults, Unwanted: []string{"a"}},
		"repeated":     {Wanted: 1, Faults: faults, Repeated: []string{"a"}},
		"out of order": {Wanted: 1, Faults: faults, OutOfOrder: []string{"a"}},
	} {
		check.That(t, conclude(r) != nil, "%s: it counts as a proof", name)
	}
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for n := range 100 {
		hundred = append(hundred, time.Duration(n+1))
	}
	check.Equal(t, percentile(hundred, 0.99), 99)
	check.Equal(t, percentile(hundred, 0.50), 50)
	check.Equal(t, percentile(hundred[:2], 0.50), 1)
	check.Equal(t, percentile(hundred[:1], 0.99), 1)
}

// Loses returns the directions in which each process of a group loses data now.
func (g *Group) Loses() (all [][2]bool) {
	for _, n := range g.nets {
		n.mu.Lock()
		all = append(all, n.lose)
		n.mu.Unlock()
	}
	return all
}

// Leader names the node that leads a stream.
func (s *Servers) Leader(t *testing.T, stream string) string {
	t.Helper()
	return check.Must(s.cluster.StreamLeader(t.Context(), stream))(t).Name
}
