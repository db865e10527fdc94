package kvlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A lock that was handed over is held without a write only on the ground of an earlier write that is not long ago.
func TestAccept(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*gate)
		want   bool
	}{
		{"after a write of its own", func(*gate) {}, true},
		{"and others have queued since", func(g *gate) { g.rec.Token, g.at = 8, 12 }, true},
		{"without one", func(g *gate) { g.wrote = wrote{} }, false},
		{"before its last write", func(g *gate) { g.wrote.at = 9 }, false},
		{"which others have queued over", func(g *gate) { g.wrote.at, g.rec.Token, g.at = 9, 8, 12 }, false},
		{"long after it", func(g *gate) { g.wrote.sent = g.wrote.sent.Add(grantTTL/5 - grantTTL/3) }, false},
		{"a second time", func(g *gate) { g.handed = "lease" }, false},
		{"to somebody else", func(g *gate) { g.rec.Member = "you" }, false},
		{"and confirmed", func(g *gate) { g.rec.Granted = false }, false},
		{"while it is held", func(g *gate) { g.lease = &Lease{} }, false},
		{"while it closes", func(g *gate) { g.closing = ErrClosed }, false},
		{"which cannot be confirmed soon", func(g *gate) { g.inLine = true }, false},
		{"to nobody any more", func(g *gate) { g.waiters.Init() }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				now := time.Now()
				g := &gate{
					locker: &Locker{store: &store{}, member: "me"}, name: "l", at: 9, wrote: wrote{sent: now.Add(-grantTTL / 5), at: 7},
					rec: &lockRecord{lease: "lease", ttl: grantTTL, Member: "me", Granted: true},
				}
				w := &waiter{ttl: time.Minute, values: t.Context(), done: make(chan struct{}), list: &g.waiters}
				w.element = g.waiters.PushBack(w)
				tt.change(g)
				g.accept(now)
				if got := w.lease != nil; got != tt.want {
					t.Fatalf("accepted: %v", got)
				}
				if !tt.want {
					return
				}
				w.lease.timer.Stop()
				if until := deadline(g.wrote.sent, grantTTL); !w.lease.deadline.Equal(until) || w.lease.token.Revision != g.rec.token(g.at) {
					t.Errorf("holds until %s with token %s", w.lease.deadline, w.lease.token)
				}
			})
		})
	}
}

// An answer that shows the lock as it was before it was handed to this member, and that the push of this overtook, takes
// nothing away: neither the answer to a write that was refused nor to a look.
func TestOvertakenAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*gate, Slot){
		"to a write": func(g *gate, old Slot) { g.settle(&transaction{change: change{expect: 7}}, &conflictError{slot: old}) },
		"to a look":  func(g *gate, old Slot) { g.found(old, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				now := time.Now()
				g := &gate{
					locker: &Locker{store: &store{}, member: "me"}, name: "l", at: 7, wrote: wrote{sent: now, at: 7},
					rec: &lockRecord{lease: "first", ttl: time.Minute, Member: "first"},
				}
				w := &waiter{ttl: time.Minute, values: t.Context(), done: make(chan struct{}), list: &g.waiters}
				w.element = g.waiters.PushBack(w)
				g.learn(Slot{Key: "l", Revision: 9, seen: now, lock: &lockRecord{lease: "mine", ttl: grantTTL, Member: "me", Granted: true}}, false)
				if w.lease == nil {
					t.Fatal("the lock was not accepted")
				}
				defer w.lease.timer.Stop()
				answer(g, Slot{Key: "l", Revision: 8, seen: now, lock: &lockRecord{lease: "second", ttl: grantTTL, Member: "second"}})
				if err := context.Cause(w.lease.ctx); err != nil || g.lease != w.lease || g.at != 9 {
					t.Errorf("the lock is known at revision %d and lost: %v", g.at, err)
				}
				// What is asked with that known is believed, however old it is: the bucket may have been made anew.
				g.found(Slot{Key: "l", Revision: 8, seen: now, lock: &lockRecord{lease: "second", ttl: grantTTL, Member: "second"}}, 9)
				if err := context.Cause(w.lease.ctx); !errors.Is(err, ErrLost) {
					t.Errorf("the lease ended with %v", err)
				}
			})
		})
	}
}
