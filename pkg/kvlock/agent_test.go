package kvlock

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// waitingAgent returns the agent of a lock with a waiter. Its last write, at revision 7, was sent at a time; rec is the record at a
// later revision.
func waitingAgent(t *testing.T, sent time.Time, at uint64, rec *record) (*agent, *waiter) {
	t.Helper()
	a := &agent{
		locker: &Locker{store: &kv.Store{}, member: "me", isFresh: func() bool { return true }}, name: "l",
		lastWrite: lastWrite{sent: sent, at: 7}, situation: situation{member: "me", at: at, rec: rec},
	}
	w := &waiter{AcquireOptions: AcquireOptions{TTL: time.Minute}, values: t.Context(), done: make(chan struct{}), list: &a.waiters}
	w.element = a.waiters.PushBack(w)
	return a, w
}

// A lock that was handed over is held without a write only on the ground of an earlier write that is not long ago.
func TestAccept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*agent)
		want   bool
	}{
		{"after its own write", func(*agent) {}, true},
		{"and others have queued since", func(a *agent) { a.rec.Token, a.at = 8, 12 }, true},
		{"without one", func(a *agent) { a.lastWrite = lastWrite{} }, false},
		{"before its last write", func(a *agent) { a.lastWrite.at = 9 }, false},
		{"which others have queued over", func(a *agent) { a.lastWrite.at, a.rec.Token, a.at = 9, 8, 12 }, false},
		{"long after it", func(a *agent) { a.lastWrite.sent = a.lastWrite.sent.Add(grantTTL/5 - grantTTL/3) }, false},
		{"a second time", func(a *agent) { a.acceptedGrant = "lease" }, false},
		{"to somebody else", func(a *agent) { a.rec.Member = "you" }, false},
		{"and confirmed", func(a *agent) { a.rec.Granted = false }, false},
		{"while it is held", func(a *agent) { a.lease = &Lease{} }, false},
		{"while it closes", func(a *agent) { a.closing = ErrClosed }, false},
		{"which cannot be confirmed soon", func(a *agent) { a.phase = inLine }, false},
		{"in an unknown generation", func(a *agent) { a.locker.isFresh = func() bool { return false } }, false},
		{"to nobody any more", func(a *agent) { a.waiters.Init() }, false},
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes
			now := time.Now()
			a, w := waitingAgent(t, now.Add(-grantTTL/5), 9, &record{Lease: "lease", TTL: grantTTL, Member: "me", Granted: true})
			tt.change(a)
			a.accept(now)
			got := w.lease != nil
			check.Require(t, got == tt.want, "%s: accepted: %v", tt.name, got)
			if !tt.want {
				return
			}
			w.lease.timer.Stop()
			until := kv.Deadline(a.lastWrite.sent, grantTTL)
			check.That(t, w.lease.deadline.Equal(until) && w.lease.token.Revision == a.rec.takenAt(a.at), "%s: holds until %s with token %d",
				tt.name, w.lease.deadline, w.lease.token.Revision)
		})
	}
}

// An answer that shows the lock as it was before it was handed to this member, and that the push of this overtook, takes
// nothing away: neither the answer to a write that was refused nor to a look.
func TestOvertakenAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*agent, state){
		"to a write": func(a *agent, old state) {
			a.apply(&transaction{change: kv.Change{Expect: 7}, read: old, err: &kv.ConflictError{Revision: old.revision}})
		},
		"to a look": func(a *agent, old state) { a.learn(old, a.at == 7) },
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes
			now := time.Now()
			a, w := waitingAgent(t, now, 7, &record{Lease: "first", TTL: time.Minute, Member: "first"})
			a.learn(state{name: "l", revision: 9, seen: now, record: &record{Lease: "mine", TTL: grantTTL, Member: "me", Granted: true}}, false)
			check.Require(t, w.lease != nil, "%s: the lock was not accepted", name)
			defer w.lease.timer.Stop()
			answer(a, state{name: "l", revision: 8, seen: now, record: &record{Lease: "second", TTL: grantTTL, Member: "second"}})
			err := context.Cause(w.lease.ctx)
			check.That(t, err == nil && a.lease == w.lease && a.at == 9, "%s: the lock is known at revision %d and lost: %v", name, a.at, err)
			// An answer to a question of that revision or later is believed, however old the record: the bucket may be a new one.
			a.learn(state{name: "l", revision: 8, seen: now, record: &record{Lease: "second", TTL: grantTTL, Member: "second"}}, true)
			check.ErrorIs(t, context.Cause(w.lease.ctx), ErrLost, name+": the lease ended with")
		})
	}
}

// The server's own times shorten a lease, by no more than they prove.
func TestObservedLeaseIsShortened(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stored := time.Unix(1_000_000, 0)
	const ttl = 8 * time.Second // 3 s of skew
	for name, tt := range map[string]struct {
		renewed time.Duration // before entry was stored; 0 for none
		asked   bool
		want    time.Duration
	}{
		"nothing known":           {0, true, ttl},
		"just renewed":            {time.Millisecond, true, ttl},
		"within the skew":         {3 * time.Second, true, ttl},
		"half":                    {4 * time.Second, true, 7 * time.Second},
		"over, and not asked":     {time.Hour, false, ttl},
		"over":                    {time.Hour, true, answerTime},
		"renewed after it stored": {-time.Hour, true, ttl},
	} {
		rec := &record{TTL: ttl, Asked: tt.asked}
		if tt.renewed != 0 {
			rec.Renewed = stored.Add(-tt.renewed).UnixNano()
		}
		l := newObservedLease(rec, now)
		l.shorten(rec, state{created: stored, seen: now})
		check.Equal(t, l.expiresAt.Sub(now), tt.want, name)
	}
}

// An agent sets its timer to when it may leave. At that time it sets none, which would be due before the agent is retired.
func TestAgentThatLeavesSetsNoTimer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for since, timed := range map[time.Duration]bool{0: true, lingering: false} {
		a := &agent{used: now.Add(-since), watching: true, resting: true, phase: working}
		check.That(t, a.park() == unused && (a.timer != nil) == timed, "used %s ago: a timer: %v, want %v", since, a.timer != nil, timed)
		if a.timer != nil {
			a.timer.Stop()
		}
	}
}

// Each name has its own key, from which it is read back. A name that may be a key is its own.
func TestKeysOfNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.daily": "report.daily", "a=b/c": "a=b/c", "db1:5432.x": "=ZGIxOjU0MzI.x", "=": "=PQ", "a.=YQ": "a.=PVlR", "_kv": "=X2t2",
	} {
		check.Equal(t, keyOf(name), want, "key of "+name)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		name := make([]byte, 1+r.IntN(8))
		for i := range name {
			name[i] = ".=aYQ:\x00\xff> "[r.IntN(10)]
		}
		key := keyOf(string(name))
		check.Require(t, kv.CheckKey(key) != nil || nameOf(key) == string(name),
			"key of %q is %q, of which the name is %q", name, key, nameOf(key))
	}
}

func members(q queue) (all []string) {
	for _, r := range q {
		for range r.places {
			all = append(all, r.member)
		}
	}
	return all
}

// places counts the places of a member.
func places(q queue, member string) int {
	return len(slices.DeleteFunc(members(q), func(m string) bool { return m != member }))
}

// After any operation on a queue nothing is changed in place, the others keep their order, and a member has as many
// places as requested where there is room.
func TestRandomQueues(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	var q queue
	var last lastQueue
	for range 20_000 {
		member := string(rune('a' + r.IntN(26)))
		before, shown := slices.Clone(q), members(q)
		var next queue
		switch r.IntN(3) {
		case 0:
			next = q.leave(member)
			want := members(q) // without the member's first place
			if i := slices.Index(want, member); i >= 0 {
				want = slices.Delete(want, i, i+1)
			}
			check.Require(t, slices.Equal(members(next), want), "%s left %q, which became %q", member, members(q), members(next))
		case 1:
			next = q.without(member)
			check.Require(t, places(next, member) == 0, "%s is left in %v", member, next)
		default:
			want := r.IntN(12)
			next = q.fit(member, "i", want)
			got := places(next, member)
			check.Require(t, got == want, "%d places, want %d", got, want)
		}
		check.Require(t, reflect.DeepEqual(before, slices.Clone(q)), "the queue was changed in place")
		shown = slices.DeleteFunc(shown, func(m string) bool { return m == member })
		others := slices.DeleteFunc(members(next), func(m string) bool { return m == member })
		check.Require(t, slices.Equal(others, shown), "others were %q, and are %q", shown, others)
		read, err := last.parse(string(next.append(nil)))
		check.Require(t, err == nil && len(read) == len(next) && (len(next) == 0 || reflect.DeepEqual(read, next)),
			"read %v, %v; wrote %v", read, err, next)
		q = read
	}
}

// A queue is bounded: a member that finds no room keeps the places that it has.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	var q queue
	for i := range maxRuns {
		q = q.fit(string(rune('a'+i%2)), "i", places(q, string(rune('a'+i%2)))+1)
	}
	check.That(t, len(q) == maxRuns && q.missing("c", 1) == 0 && places(q.fit("c", "i", 1), "c") == 0, "there is room in a full queue")
	last := q[len(q)-1].member
	check.That(t, q.missing(last, 1000) > 0 && places(q.fit(last, "i", 1000), last) == 1000, "the last run cannot grow")
	check.ErrorIs(t, check.Err(parseQueue(nil, string(q.append(nil)))), nil)
	check.That(t, check.Err(parseQueue(nil, string(append(q, run{"c", "i", 1}).append(nil)))) != nil, "a queue that is too long was read")
}

// Records as the bucket has them have been the same since the first version.
func TestRecordAsStored(t *testing.T) {
	t.Parallel()
	id := "WtHXeWWtHXeWWtHXeWabcd"
	r := &record{
		Lease: id, Instance: "host-12345-abcdef", TTL: 30 * time.Second, Member: id, Granted: true, Asked: true, Renewal: 12,
		Renewed: 1763663523123456789, Since: 1763663523000, Stolen: "host-2", Token: 48211, Metadata: map[string]string{"for": "<b>"},
		queue: queue{{id, "host-12345-abcdef", 1}, {"x", "\"\n", 2}, {"y", "", 1}},
	}
	const want = `{"v":1,"state":"held","claim":"WtHXeWWtHXeWWtHXeWabcd","owner":"owner","instance":"host-12345-abcdef","ttl":30}` + "\n" +
		`{"asked":true,"member":"WtHXeWWtHXeWWtHXeWabcd","granted":true,"metadata":{"for":"\u003cb\u003e"},"renewal":12,` +
		`"renewed":1763663523123456789,"since":1763663523000,"stolen":"host-2","token":48211}` + "\n" +
		`WtHXeWWtHXeWWtHXeWabcd 1 "host-12345-abcdef"` + "\n" + `x 2 "\"\n"` + "\n" + `y 1 ""` + "\n"
	data, err := r.encode("owner")
	check.Require(t, err == nil && string(data) == want, "stored as\n%s, %v, not\n%s", data, err, want)
	r.writer = "owner"
	got, err := decode(data, nil)
	check.That(t, err == nil && reflect.DeepEqual(got, r), "read as %+v, %v", got, err)
}

// Force leaves the queue as it is. A lock whose holder is dead is taken without the places of that holder's process.
func TestQueueOfATakenLock(t *testing.T) {
	t.Parallel()
	for force, want := range map[bool][]string{true: {"dead", "alive"}, false: {"alive"}} {
		a := &agent{locker: &Locker{store: &kv.Store{}, member: "me"}, name: "l", key: "l", situation: situation{
			member: "me", at: 7, rec: &record{Lease: "theirs", TTL: time.Minute, Member: "dead", queue: queue{{"dead", "", 1}, {"alive", "", 1}}},
		}}
		w := &waiter{AcquireOptions: AcquireOptions{TTL: time.Minute}, now: true, force: force, list: &a.others}
		w.element = a.others.PushBack(w)
		next := a.compose(step{do: take, waiter: w}, time.Now()).next
		check.That(t, slices.Equal(members(next.queue), want) && next.Member == "me", "by force %v: %+v", force, next)
	}
}

// No record of a lock causes a panic, and a record that can be read is written as it was read.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":5}` + "\n" + `{"member":"m","since":1}` + "\nx 2 \"i\"\n"))
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":1}` + "\n" + `{"member":"m","since":1,"metadata":{"a":"b"}}` + "\n"))
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":1}` + "\n" + `{"member":"m","since":1,"metadata":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, nil)
		if err != nil {
			return
		}
		again, err := r.encode(r.writer)
		if err != nil {
			return // escaping made the first line too long
		}
		back, err := decode(again, nil)
		check.That(t, err == nil && reflect.DeepEqual(back, r), "%+v was read back as %+v, %v", r, back, err)
	})
}
