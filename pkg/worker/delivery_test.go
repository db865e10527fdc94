package worker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestDeliveriesFollowTheNewest(t *testing.T) {
	t.Parallel()
	held := newDeliveries()
	copyOf := func(n int) *delivery {
		return &delivery{latest: n, first: n, info: Info{Sequence: 7}, reply: fmt.Sprint("r", n)}
	}
	first := copyOf(1)
	now := time.Now()
	arrive := func(d *delivery) arrival {
		kind, _ := held.arrive(d, now)
		return kind
	}
	check.Require(t, arrive(first) == arrivedFresh && arrive(copyOf(3)) == arrivedCopy && arrive(copyOf(2)) == arrivedCopy && held.size() == 1,
		"a message that is here was taken in again")
	check.Equal(t, first.reply, "r3", "answers go to")
	if reply, extra := held.endBeats(first); reply != "r3" || extra != 2 || first.ownership != released {
		t.Errorf("endBeats: %s, %d extra, ownership %d; want r3, 2, released", reply, extra, first.ownership)
	}
	next := copyOf(4)
	check.That(t, arrive(next) == arrivedFresh, "a message that was given back is not taken in")
	held.remove(first, now)
	check.That(t, held.bySeq[7] == next, "removing the old delivery removed the new one")
	check.That(t, held.startHandler(next, time.Now()) && len(held.close()) == 1 && !held.endHandler(next),
		"an abandoned delivery could be claimed")
	check.That(t, !held.startHandler(copyOf(5), time.Now()), "a handler started after close")
}

// TestCopiesOfAnAcknowledgedJob distinguishes copies from jobs with the same sequence in a stream that was made again, and from jobs
// that an operator has delivered again.
func TestCopiesOfAnAcknowledgedJob(t *testing.T) {
	t.Parallel()
	stored := time.Now()
	now, held := stored.Add(time.Hour), newDeliveries()
	made := func(sequence uint64, stored time.Time) *delivery {
		return &delivery{info: Info{EnqueuedAt: stored, Sequence: sequence}}
	}
	end := func(d *delivery, acked bool) {
		held.arrive(d, now)
		d.ackConfirmed = acked
		held.remove(d, now)
	}
	end(made(7, stored), true)
	end(made(8, stored), false)
	for name, c := range map[string]struct {
		d    *delivery
		at   time.Time
		want arrival
	}{
		"at once":          {made(7, stored), now, arrivedAcked},
		"after a while":    {made(7, stored), now.Add(copiesCome - 1), arrivedAcked},
		"asked for":        {made(7, stored), now.Add(copiesCome), arrivedFresh},
		"another stream":   {made(7, stored.Add(1)), now, arrivedFresh},
		"another job":      {made(7+ackedKept, stored), now, arrivedFresh},
		"not acknowledged": {made(8, stored), now, arrivedFresh},
	} {
		got, _ := held.arrive(c.d, c.at)
		delete(held.bySeq, c.d.info.Sequence)
		check.That(t, got == c.want, "%s: %d, want %d", name, got, c.want)
	}
	held.orphan("cook")
	got, _ := held.arrive(made(7, stored), now)
	check.Equal(t, got, arrivedFresh, "from a consumer that was made again")
}

// The deliveries of a consumer show that it was made again, or has lost count. The jobs held of it are in doubt then, and
// orphaned when it turns out to be another consumer.
func TestConsumerThatGoesBack(t *testing.T) {
	t.Parallel()
	type arrival struct {
		consumer string
		count    uint64
		first    int
		sequence uint64
		back     bool
	}
	held := newDeliveries()
	of := func(a arrival) *delivery {
		return &delivery{count: a.count, first: a.first, info: Info{Consumer: a.consumer, Sequence: a.sequence}}
	}
	for i, a := range []arrival{
		{"a", 1, 1, 5, false},
		{"b", 1, 1, 4, false},
		{"a", 7, 2, 3, false},
		{"a", 8, 1, 6, false},
		{"a", 8, 1, 7, true},
		{"a", 9, 1, 8, false},
		{"a", 10, 1, 8, true},
		{"a", 2, 3, 9, true},
		{"b", 2, 1, 5, false},
	} {
		d := of(a)
		_, back := held.arrive(d, time.Now())
		check.Equal(t, back, a.back, fmt.Sprintf("arrival %d: gone back", i))
		delete(held.bySeq, d.info.Sequence)
		held.bySeq[uint64(1000+i)] = d
	}
	held.orphan("a")
	for i, d := range held.bySeq {
		old := d.info.Consumer == "a" && i < 1007
		check.That(t, d.doubted == old && (d.ownership == orphaned) == old, "arrival %d: in doubt is %v, ownership %d; want %v", i-1000,
			d.doubted, d.ownership, old)
	}
	// Of a consumer that never went back, an orphan is in doubt as well, and has no subject for answers until it comes again.
	orphan := of(arrival{"c", 1, 1, 20, false})
	orphan.reply = "r1"
	held.arrive(orphan, time.Now())
	held.orphan("c")
	check.That(t, orphan.doubted && orphan.ownership == orphaned && orphan.reply == "", "orphaned: %+v", orphan)
	again := of(arrival{"c", 1, 1, 20, true})
	again.latest, again.reply = 1, "r2"
	kind, _ := held.arrive(again, time.Now())
	check.That(t, kind == arrivedCopy && orphan.doubted && orphan.ownership == owned && orphan.reply == "r2", "came again: %d, %+v", kind,
		orphan)
}

func TestWaitEndsByTimeAndBySignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slots{free: 1}
		s.acquire(0, nil, 0)
		begun := time.Now()
		check.That(t, !s.acquire(0, nil, time.Second) && time.Since(begun) == time.Second, "after %s, want no slot after 1s", time.Since(begun))
		done := make(chan struct{})
		ended := make(chan bool)
		go func() { ended <- s.acquire(0, done, 0) }()
		synctest.Wait()
		close(done)
		check.That(t, !<-ended, "a slot, want none")
		// Waiters that gave up do not take the slot with them.
		s.release()
		check.That(t, s.acquire(0, nil, 0), "no slot")
	})
}
