package limit

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPermitsAreShared(t *testing.T) {
	t.Parallel()
	two := func(a, b int, queue ...string) record {
		rec := record{Queue: queue, Version: version}
		rec.set("a", a, time.Second)
		rec.set("b", b, time.Second)
		return rec
	}
	for _, tt := range []struct {
		name  string
		rec   record
		limit int
		id    string
		owes  bool
		want  int
	}{
		{"nobody else", two(3, 0), 10, "a", true, 10},
		{"the other has some", two(3, 4), 10, "a", true, 6},
		{"all is taken", two(3, 7), 10, "a", true, 3},
		{"the other wants some", two(10, 0, "b"), 10, "a", true, 9},
		{"the other has its share, and stands behind", two(5, 5, "a", "b"), 10, "a", true, 5},
		{"below its share", two(2, 8, "a", "b"), 10, "b", true, 7},
		{"one for two, the other first", two(1, 0, "b", "a"), 1, "a", true, 0},
		{"one for two, first", two(0, 0, "b", "a"), 1, "b", true, 1},
		{"left lying", two(0, 0, "b", "a"), 1, "a", false, 1},
	} {
		check.Equal(t, tt.rec.most(tt.limit, tt.id, tt.owes), tt.want, tt.name)
	}
}

func TestStartsAreSpaced(t *testing.T) {
	t.Parallel()
	now := time.Now()
	spec := Spec{Burst: 3, Per: time.Second, Rate: 4}
	rec := record{Version: version}
	starts := rec.take(spec, now, 10)
	check.That(t, len(starts) == 3 && starts[2].Equal(now), "%d starts at once, want 3", len(starts))
	next := rec.next(spec, now)
	check.That(t, next.Sub(now) == spec.gap(), "the next start in %s, want %s", next.Sub(now), spec.gap())
	// Just before it is due it is given out, for its time.
	early := now.Add(spec.gap() - horizon)
	starts = rec.take(spec, early, 10)
	check.That(t, len(starts) == 1 && starts[0].Sub(now) == spec.gap(), "starts %v, want one in %s", starts, spec.gap())
	// The times of the longest bursts do not overflow: a quota of half a million a month, and what nobody would configure.
	for spec, want := range map[Spec]int{
		{Burst: 500_000, Per: 31 * 24 * time.Hour, Rate: 500_000}: 500_000, {Burst: 1_000_000, Per: 31 * 24 * time.Hour, Rate: 1}: 589, // in 50 years
	} {
		rec := record{Version: version}
		first, second := len(rec.take(spec, now, 1_000_001)), len(rec.take(spec, now, 1))
		check.That(t, first == want && second == 0, "%+v: %d starts at once, then %d, want %d and none", spec, first, second, want)
	}
	// A record of a clock that was an hour ahead stops nobody for an hour.
	rec.Next = now.Add(time.Hour).UnixNano()
	next = rec.next(spec, now)
	check.That(t, !next.After(now), "the next start in %s, want now", next.Sub(now))
}
