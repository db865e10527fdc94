package order

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is the chain of one consumer, as a worker follows it.
type line struct {
	Lines

	count uint64 // consumer sequence of the latest delivery
}

// deliver has the consumer deliver a message for the n-th time, after missing other deliveries.
func (l *line) deliver(sequence uint64, subject string, n int, missing uint64) *Job {
	l.count += missing + 1
	j := &Job{Turn: make(chan struct{}, 1)}
	l.Follow(Arrival{Consumer: "c", Delivered: n, Delivery: l.count, Sequence: sequence, Subject: subject}, j)
	l.Add(j)
	return j
}

// settled returns a line in which a job may start without a read: all before sequence 10 has ended, and the worker has followed since.
func settled(t *testing.T) *line {
	t.Helper()
	l := &line{}
	first := l.deliver(10, "a", 1, 0)
	check.That(t, !isSure(l, first), "the first delivery is sure to have nothing before it")
	next := l.deliver(11, "b", 1, 0)
	l.End(first, true)
	l.Acknowledged("c", 9)
	isFirst, sure, from := l.Look(next)
	check.Require(t, isFirst && sure && from == 10, "a line without gaps: first %t, sure %t, from %d", isFirst, sure, from)
	l.End(next, true)
	return l
}

// TestChainEndsWhereADeliveryIsMissing wants a read for each delivery after one that another worker has got, or that came again,
// until all before has ended.
func TestChainEndsWhereADeliveryIsMissing(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(l *line) *Job{
		"another worker has one": func(l *line) *Job { return l.deliver(13, "a", 1, 1) },
		"it came before":         func(l *line) *Job { return l.deliver(12, "a", 2, 0) },
		"the consumer has gone back": func(l *line) *Job {
			l.count++
			j := &Job{Turn: make(chan struct{}, 1)}
			l.Follow(Arrival{Back: true, Consumer: "c", Delivered: 1, Delivery: l.count, Sequence: 12, Subject: "a"}, j)
			l.Add(j)
			return j
		},
		"it was here when the gap came": func(l *line) *Job {
			d := l.deliver(12, "a", 1, 0)
			l.deliver(14, "b", 1, 1)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := settled(t)
			first, sure, _ := l.Look(deliver(l))
			check.That(t, first && !sure, "first %t, sure %t; want true, false", first, sure)
			l.Acknowledged("c", 20)
			if d := l.deliver(21, "c", 1, 0); name != "it came before" {
				_, sure, from := l.Look(d)
				check.That(t, sure && from == 21, "after all before has ended: sure %t, from %d", sure, from)
			}
		})
	}
}

// TestChainBehindWhatHasEnded has a worker get the first job of a stream, and the one behind the last that has ended.
func TestChainBehindWhatHasEnded(t *testing.T) {
	t.Parallel()
	for floor, want := range map[uint64]bool{0: false, 7: false, 8: false, 9: true, 10: false} {
		l := &line{}
		l.Acknowledged("c", floor)
		d := l.deliver(10, "a", 1, 0)
		check.That(t, isSure(l, d) == want, "all up to %d has ended: sure of job 10 %t, want %t", floor, !want, want)
	}
	l := &line{}
	d := l.deliver(1, "a", 1, 0)
	check.That(t, isSure(l, d), "not sure of the first job of a stream")
}

// TestJobOfAnEarlierChain has the consumer go back behind a job that is here, as that of a stream which was recreated.
func TestJobOfAnEarlierChain(t *testing.T) {
	t.Parallel()
	l := settled(t)
	held := l.deliver(12, "a", 1, 0)
	l.count = 0
	l.End(l.deliver(1, "b", 1, 0), true)
	l.Acknowledged("c", 1)
	check.That(t, !isSure(l, held) && isSure(l, l.deliver(2, "c", 1, 0)), "want it sure of the new stream's jobs only")
}

// TestChainBeginsWithAFirstDelivery has a chain begin with a job that comes again: another worker may have jobs that lie behind it.
func TestChainBeginsWithAFirstDelivery(t *testing.T) {
	t.Parallel()
	l := settled(t)
	l.deliver(12, "a", 2, 5)
	next := l.deliver(18, "b", 1, 0)
	l.Acknowledged("c", 11)
	check.That(t, !isSure(l, next), "sure of a job, although those from 13 to 17 may be another worker's")
	l.Acknowledged("c", 17)
	check.That(t, isSure(l, next), "not sure, although all before the chain has ended")
}

// TestChainForgetsManyThatWereGivenBack has jobs of more keys go back than a worker remembers: those that come after are read for.
func TestChainForgetsManyThatWereGivenBack(t *testing.T) {
	t.Parallel()
	l := settled(t)
	l.End(l.deliver(12, "held", 1, 0), false)
	held := l.deliver(13, "held", 1, 0)
	const after = 14
	for i := range uint64(maxStrays) - 1 {
		l.End(l.deliver(after+i, fmt.Sprint("k", i), 1, 0), false)
	}
	last := l.deliver(after+maxStrays, "a", 1, 0)
	check.That(t, isSure(l, last), "as many as are remembered: not sure")
	l.End(last, false)
	d := l.deliver(after+maxStrays+1, "b", 1, 0)
	if c := l.chains["c"]; len(c.keys) != 2 || c.strays != 0 {
		t.Errorf("%d keys and %d strays are remembered; want those of the two jobs that are here, and none", len(c.keys), c.strays)
	}
	check.That(t, !isSure(l, d) && !isSure(l, held), "sure of the jobs before, when a returned one is forgotten")
	l.End(held, true)
	check.Equal(t, l.chains["c"].strays, 0, "strays are left of a chain that is forgotten")
}

func isSure(l *line, d *Job) bool {
	_, sure, _ := l.Look(d)
	return sure
}

// TestJobGivenBackHidesNothing wants a read for a job whose subject has one before it that was given back, and none once that has ended.
func TestJobGivenBackHidesNothing(t *testing.T) {
	t.Parallel()
	l := settled(t)
	l.End(l.deliver(12, "a", 1, 0), false)
	later, other := l.deliver(13, "a", 1, 0), l.deliver(14, "b", 1, 0)
	check.That(t, !isSure(l, later) && isSure(l, other),
		"sure: %t of its subject, %t of another; want false, true", isSure(l, later), isSure(l, other))
	again := l.deliver(12, "a", 2, 0)
	first, _, _ := l.Look(later)
	check.That(t, !first, "first, although an earlier one came back")
	l.End(again, true)
	check.That(t, isSure(l, later), "not sure, although the one that was given back has ended")
}

// TestPaceIsThatOfJobsThatAreHere has jobs end that went back and came late, each after a longer time than the one before. The next that
// goes back comes again soon: else all behind it go back for even longer.
func TestPaceIsThatOfJobsThatAreHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Millisecond
		l := &line{}
		last := l.deliver(1000, "a", 1, 0)
		for n := range uint64(8) {
			natstest.Pass(time.Second << n)
			late := l.deliver(n+1, "a", 2, 0)
			l.Start(late)
			natstest.Pass(takes)
			l.End(late, true)
		}
		for n := range uint64(100) {
			l.deliver(n+100, "a", 1, 0)
		}
		l.SendBack(last)
		got := l.SentBack(last)
		check.That(t, got <= 2*100*takes, "it comes again after %v, want about half of 100 times %v", got, takes)
	})
}
