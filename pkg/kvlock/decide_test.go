package kvlock

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A situation and the time have one next step. Deciding changes nothing.
func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	const ttl = 30 * time.Second
	in := now.Add
	call := func(s *situation, w *waiter) *waiter {
		w.list = &s.waiters
		if w.now {
			w.list = &s.others
		}
		w.element = w.list.PushBack(w)
		return w
	}
	waits := func(s *situation) { call(s, &waiter{}) }
	tries := func(s *situation) { call(s, &waiter{now: true, came: in(-2)}) }
	forces := func(s *situation) { call(s, &waiter{now: true, force: true}) }
	theirs := func(s *situation) { // another member has held the lock for a while, and was just seen to renew it
		s.at, s.created, s.looked = 7, now.Add(-time.Second), in(-1)
		s.rec = &record{Lease: "theirs", TTL: ttl, Member: "you"}
		s.observed = observedLease{expiresAt: in(ttl)}
	}
	expired := func(s *situation) { s.observed.expiresAt = now }
	mine := func(s *situation) { s.at, s.rec, s.held = 7, &record{Lease: "mine", TTL: ttl, Member: "me"}, in(2*ttl) }
	inHand := func(s *situation) { mine(s); s.lease = &Lease{ttl: ttl, renewAt: in(ttl / 3)} }
	granted := func(s *situation) { mine(s); s.rec.Granted = true }
	queued := func(s *situation) { s.rec.queue = s.rec.queue.fit("me", "", s.waiters.Len()) }
	behind := func(n int) func(*situation) {
		return func(s *situation) {
			for i := range n {
				s.rec.queue = s.rec.queue.fit(string(rune('a'+i)), "", 1)
			}
		}
	}
	rests := func(s *situation) { s.notBefore = in(time.Second) }
	closes := func(by time.Duration) func(*situation) {
		return func(s *situation) { s.closing, s.closeBy = ErrClosed, in(by) }
	}
	for name, tt := range map[string]struct {
		is   []func(*situation)
		do   action
		own  bool
		when time.Duration // 0 for none
	}{
		"nothing is known or wanted":          {},
		"a free lock":                         {is: []func(*situation){waits}, do: take},
		"a free lock, after a refusal":        {is: []func(*situation){waits, rests}, when: time.Second},
		"a free lock, for one who tries":      {is: []func(*situation){tries}, do: take},
		"a record that vanished":              {is: []func(*situation){waits, theirs, func(s *situation) { s.rec = nil }}, when: ttl},
		"a record that vanished, tried":       {is: []func(*situation){tries, theirs, func(s *situation) { s.rec = nil }}, do: refuse},
		"a record in doubt":                   {is: []func(*situation){waits, theirs, func(s *situation) { s.stale = true }}, do: look},
		"a held lock":                         {is: []func(*situation){waits, theirs}, do: queueUp},
		"a held lock, queued":                 {is: []func(*situation){waits, theirs, queued}, when: ttl},
		"a held lock, tried":                  {is: []func(*situation){tries, theirs}, do: refuse},
		"a held lock, tried after the look":   {is: []func(*situation){tries, theirs, func(s *situation) { s.looked = in(-3) }}, do: look},
		"a held lock, forced":                 {is: []func(*situation){tries, forces, theirs}, do: take},
		"a place too many":                    {is: []func(*situation){theirs, waits, waits, queued, func(s *situation) { s.waiters.Remove(s.waiters.Front()) }}, do: queueUp},
		"a held lock of nobody's interest":    {is: []func(*situation){theirs}},
		"a renewal that is overdue, tried":    {is: []func(*situation){tries, theirs, func(s *situation) { s.created = in(-time.Hour) }}, do: touch},
		"a holder that was asked":             {is: []func(*situation){tries, theirs, func(s *situation) { s.rec.Asked, s.observed.expiresAt = true, in(answerTime) }}, when: answerTime},
		"a dead holder":                       {is: []func(*situation){waits, theirs, queued, expired}, do: take},
		"a dead holder, behind others":        {is: []func(*situation){theirs, behind(3), waits, queued, expired}, do: probe},
		"behind two that live and one gone":   {is: []func(*situation){theirs, behind(3), waits, queued, expired, probed("c")}, when: 2 * takeOverStep},
		"behind three that are gone":          {is: []func(*situation){theirs, behind(3), waits, queued, expired, probed("c", "b", "a")}, do: take},
		"a lease in hand":                     {is: []func(*situation){inHand}, when: ttl / 3},
		"a lease in hand, tried":              {is: []func(*situation){inHand, tries}, do: refuse},
		"a lease in hand, forced":             {is: []func(*situation){inHand, forces}, do: take},
		"a lease in hand, waited for":         {is: []func(*situation){inHand, waits}, do: queueUp, when: ttl / 3},
		"the same after a refusal":            {is: []func(*situation){inHand, waits, rests}, when: time.Second},
		"the same shortly before the renewal": {is: []func(*situation){inHand, waits, rests, func(s *situation) { s.lease.renewAt = in(1) }}, when: 1},
		"a lease that is due":                 {is: []func(*situation){inHand, rests, func(s *situation) { s.lease.renewAt = now }}, do: renew, own: true},
		"a lease that others ask about":       {is: []func(*situation){inHand, rests, func(s *situation) { s.rec.Asked = true }}, do: renew, own: true},
		"a lease that is due, no answers": {is: []func(*situation){inHand, rests, func(s *situation) {
			s.lease.renewAt, s.failure = now, errors.New("no answer")
		}}, when: time.Second},
		"a lease that is released":           {is: []func(*situation){inHand, rests, func(s *situation) { s.lease.releasing = true }}, do: pass, own: true},
		"a lock that was handed over":        {is: []func(*situation){granted, waits, rests}, do: take, own: true},
		"handed over, and nobody waits":      {is: []func(*situation){granted, rests}, do: pass, own: true},
		"a lost acknowledgement":             {is: []func(*situation){mine, func(s *situation) { s.taker, s.pendingLease = call(s, &waiter{}), "mine" }}, do: take, own: true},
		"a lost acknowledgement, given up":   {is: []func(*situation){mine, func(s *situation) { s.taker, s.pendingLease = &waiter{}, "mine" }}, do: pass, own: true},
		"a lock that nobody renewed":         {is: []func(*situation){mine, waits, func(s *situation) { s.held = in(-1) }}, do: forget},
		"closing, with a lease":              {is: []func(*situation){inHand, closes(1)}, when: ttl / 3},
		"closing, the time is over":          {is: []func(*situation){inHand, closes(0)}, do: surrender},
		"closing, the time and all is over":  {is: []func(*situation){mine, closes(0)}},
		"closing, a lock that is not wanted": {is: []func(*situation){mine, closes(1)}, do: pass, own: true},
	} {
		s := &situation{member: "me"}
		for _, is := range tt.is {
			is(s)
		}
		before := fmt.Sprintf("%+v %+v %+v", *s, s.rec, s.lease)
		got := s.decide(now)
		want := step{do: tt.do, own: tt.own, waiter: got.waiter}
		if tt.when != 0 {
			want.when = in(tt.when)
		}
		check.That(t, got == want, "%s: got %+v, want %+v", name, got, want)
		check.That(t, (got.waiter != nil) == (tt.do == take || tt.do == touch), "%s: step %d is for %+v", name, tt.do, got.waiter)
		forced := slices.ContainsFunc(slices.Collect(callers(&s.others)), func(w *waiter) bool { return w.force })
		check.That(t, got.do != take || len(tt.is) < 2 || got.waiter.force == forced, "%s: the lock is taken for another caller", name)
		check.Equal(t, fmt.Sprintf("%+v %+v %+v", *s, s.rec, s.lease), before, name+": the situation has changed")
	}
}

func probed(gone ...string) func(*situation) {
	return func(s *situation) { s.observed.probed, s.observed.gone = true, gone }
}
