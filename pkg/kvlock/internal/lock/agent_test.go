package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lock that was handed over is held without a write only on the ground of an earlier write that is not long ago.
func TestAccept(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*agent)
		want   bool
	}{
		{"after a write of its own", func(*agent) {}, true},
		{"and others have queued since", func(a *agent) { a.rec.Token, a.at = 8, 12 }, true},
		{"without one", func(a *agent) { a.lastWrite = lastWrite{} }, false},
		{"before its last write", func(a *agent) { a.lastWrite.at = 9 }, false},
		{"which others have queued over", func(a *agent) { a.lastWrite.at, a.rec.Token, a.at = 9, 8, 12 }, false},
		{"long after it", func(a *agent) { a.lastWrite.sent = a.lastWrite.sent.Add(grantTTL/5 - grantTTL/3) }, false},
		{"a second time", func(a *agent) { a.acceptedGrant = "lease" }, false},
		{"to somebody else", func(a *agent) { a.rec.Member = "you" }, false},
		{"and confirmed", func(a *agent) { a.rec.Granted = false }, false},
		{"while it is held", func(a *agent) { a.lease = &Lease{} }, false},
		{"while it closes", func(a *agent) { a.closing = kv.ErrClosed }, false},
		{"which cannot be confirmed soon", func(a *agent) { a.inLine = true }, false},
		{"in an unknown generation", func(a *agent) { a.agents.isFresh = func() bool { return false } }, false},
		{"to nobody any more", func(a *agent) { a.waiters.Init() }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				now := time.Now()
				a := &agent{
					agents: &Agents{store: &kv.Store{}, member: "me", isFresh: func() bool { return true }}, name: "l", at: 9, lastWrite: lastWrite{sent: now.Add(-grantTTL / 5), at: 7},
					rec: &Record{Lease: "lease", TTL: grantTTL, Member: "me", Granted: true},
				}
				w := &waiter{Request: Request{TTL: time.Minute}, values: t.Context(), done: make(chan struct{}), list: &a.waiters}
				w.element = a.waiters.PushBack(w)
				tt.change(a)
				a.accept(now)
				if got := w.lease != nil; got != tt.want {
					t.Fatalf("accepted: %v", got)
				}
				if !tt.want {
					return
				}
				w.lease.timer.Stop()
				if until := kv.Deadline(a.lastWrite.sent, grantTTL); !w.lease.deadline.Equal(until) || w.lease.takenAt != a.rec.TakenAt(a.at) {
					t.Errorf("holds until %s with token %d", w.lease.deadline, w.lease.takenAt)
				}
			})
		})
	}
}

// An answer that shows the lock as it was before it was handed to this member, and that the push of this overtook, takes
// nothing away: neither the answer to a write that was refused nor to a look.
func TestOvertakenAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*agent, State){
		"to a write": func(a *agent, old State) {
			a.apply(&transaction{change: kv.Change{Expect: 7}, found: old}, &kv.ConflictError{Revision: old.Revision})
		},
		"to a look": func(a *agent, old State) { a.found(old, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				now := time.Now()
				a := &agent{
					agents: &Agents{store: &kv.Store{}, member: "me", isFresh: func() bool { return true }}, name: "l", at: 7, lastWrite: lastWrite{sent: now, at: 7},
					rec: &Record{Lease: "first", TTL: time.Minute, Member: "first"},
				}
				w := &waiter{Request: Request{TTL: time.Minute}, values: t.Context(), done: make(chan struct{}), list: &a.waiters}
				w.element = a.waiters.PushBack(w)
				a.learn(State{Name: "l", Revision: 9, seen: now, Record: &Record{Lease: "mine", TTL: grantTTL, Member: "me", Granted: true}}, false)
				if w.lease == nil {
					t.Fatal("the lock was not accepted")
				}
				defer w.lease.timer.Stop()
				answer(a, State{Name: "l", Revision: 8, seen: now, Record: &Record{Lease: "second", TTL: grantTTL, Member: "second"}})
				if err := context.Cause(w.lease.ctx); err != nil || a.lease != w.lease || a.at != 9 {
					t.Errorf("the lock is known at revision %d and lost: %v", a.at, err)
				}
				// What is asked with that known is believed, however old it is: the bucket may have been made anew.
				a.found(State{Name: "l", Revision: 8, seen: now, Record: &Record{Lease: "second", TTL: grantTTL, Member: "second"}}, 9)
				if err := context.Cause(w.lease.ctx); !errors.Is(err, ErrLost) {
					t.Errorf("the lease ended with %v", err)
				}
			})
		})
	}
}

// What the server's own times prove shortens a lease, by no more than they prove.
func TestObservedLeaseIsShortened(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stored := time.Unix(1_000_000, 0)
	const ttl = 8 * time.Second // 3 s of skew
	for name, tt := range map[string]struct {
		renewed time.Duration // before slot was stored; 0 for none
		asked   bool
		want    time.Duration
	}{
		"nothing told":            {0, true, ttl},
		"just renewed":            {time.Millisecond, true, ttl},
		"within the skew":         {3 * time.Second, true, ttl},
		"half":                    {4 * time.Second, true, 7 * time.Second},
		"over, and not asked":     {time.Hour, false, ttl},
		"over":                    {time.Hour, true, answerTime},
		"renewed after it stored": {-time.Hour, true, ttl},
	} {
		rec := &Record{TTL: ttl, Asked: tt.asked}
		if tt.renewed != 0 {
			rec.Renewed = stored.Add(-tt.renewed).UnixNano()
		}
		l := newObservedLease(rec, now)
		l.shorten(rec, State{Created: stored, seen: now})
		if got := l.expiresAt.Sub(now); got != tt.want {
			t.Errorf("%s: over after %s, want %s", name, got, tt.want)
		}
	}
}
