package kvlock_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A stream that is restored from a backup goes on from an older sequence under its old creation time. Once it is marked
// its tokens are greater than all that it gave before, also those that the backup does not know.
func TestRestoredBucket(t *testing.T) {
	t.Parallel()
	dir, backup := backedUp(t)
	var last kvlock.Token
	run(t, dir, func(js jetstream.JetStream) {
		for range 5 {
			last = takeLock(t, js)
		}
	})
	run(t, backup, func(js jetstream.JetStream) {
		repeated := takeLock(t, js)
		check.Require(t, repeated.Compare(last) <= 0, "token %s after %s: the restored stream is not as this test means it", repeated, last)
		check.OK(t, kvlock.MarkRestored(t.Context(), js, testbed.Bucket))
		marked := takeLock(t, js)
		check.That(t, marked.Compare(last) > 0, "token %s after %s", marked, last)
		check.OK(t, kvlock.MarkRestored(t.Context(), js, testbed.Bucket))
		again := takeLock(t, js)
		check.That(t, again.Compare(marked) > 0, "token %s after %s, when it was marked twice", again, marked)
	})
}

// A process that ran while the stream was restored says so, and has greater tokens as soon as it is marked.
func TestRestoredUnderARunningProcess(t *testing.T) {
	t.Parallel()
	dir, backup := backedUp(t)
	before := natstest.Server(t, func(c *natsrun.Config) { c.Dir = dir })
	now := &current{}
	now.Store(before)
	_, js := natstest.Connect(t, before, nats.InProcessServer(now))
	lines := &testbed.Logged{}
	f := testbed.FlightOn(t, js, flight.Config{Logger: lines.Logger(), OpTimeout: time.Minute})
	var last kvlock.Token
	for i := range 5 {
		last = testbed.Begin(t, f, fmt.Sprintf("before%d", i), flight.BeginOptions{}).Token()
	}
	now.Store(natstest.Server(t, func(c *natsrun.Config) { c.Dir = backup }))
	before.Stop()

	testbed.Begin(t, f, "restored", flight.BeginOptions{})
	check.That(t, lines.Count("call MarkRestored") != 0, "it was not said that the bucket was restored")
	check.OK(t, kvlock.MarkRestored(t.Context(), js, testbed.Bucket))
	testbed.Begin(t, f, "learning", flight.BeginOptions{})
	marked := testbed.Begin(t, f, "marked", flight.BeginOptions{}).Token()
	check.That(t, marked.Compare(last) > 0, "token %s after %s", marked, last)
}

// backedUp returns the folder of a server that has a bucket with a lock that was used once, and a copy of the folder.
func backedUp(t *testing.T) (dir, backup string) {
	t.Helper()
	dir, backup = t.TempDir(), filepath.Join(t.TempDir(), "backup")
	run(t, dir, func(js jetstream.JetStream) {
		check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: testbed.Bucket}))
		takeLock(t, js)
	})
	check.OK(t, os.CopyFS(backup, os.DirFS(dir)))
	return dir, backup
}

// current is the server that a process finds.
type current struct{ atomic.Pointer[natsrun.Server] }

func (c *current) InProcessConn() (net.Conn, error) { return c.Load().InProcessConn() }

// run runs f on a server with its store in dir, and stops it.
func run(t *testing.T, dir string, f func(js jetstream.JetStream)) {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Dir = dir })
	defer srv.Stop()
	nc, js := natstest.Connect(t, srv)
	defer nc.Close()
	f(js)
}

// takeLock takes a lock and gives it up, in a process that has just started.
func takeLock(t *testing.T, js jetstream.JetStream) kvlock.Token {
	t.Helper()
	l := testbed.LockerOn(t, js, kvlock.LockerConfig{})
	defer l.Close()
	lease := testbed.Acquire(t, l, "l")
	testbed.Release(t, lease)
	return lease.Token()
}

// remakes are the ways in which a bucket is recreated under running processes.
var remakes = map[string]func(t *testing.T, b *testbed.Bed){
	"from a file": func(t *testing.T, b *testbed.Bed) {
		t.Helper()
		b.RecreateBucket(t, time.Millisecond)
	},
	"by CreateBucket": func(t *testing.T, b *testbed.Bed) {
		t.Helper()
		b.DeleteBucket(t)
		natstest.Pass(time.Millisecond)
		check.OK(t, kvlock.CreateBucket(t.Context(), b.JS, kvlock.BucketConfig{Bucket: testbed.Bucket}))
	},
	"marked as restored": func(t *testing.T, b *testbed.Bed) {
		t.Helper()
		check.OK(t, kvlock.MarkRestored(t.Context(), b.JS, testbed.Bucket))
	},
}

// A process that was idle while others wrote past its highest revision has a greater token than they all the same. It learns of
// the generation from the record that it replaces, or asks.
func TestTokenOfAnIdleProcess(t *testing.T) {
	for how, remake := range remakes {
		for key, idle := range map[string]time.Duration{"other": 2 * time.Second, "l": 0} {
			testbed.RunInBubble(t, how+"/"+key, func(t *testing.T, b *testbed.Bed) {
				idler, locks := b.Flight(t, flight.Config{}), b.Locker(t, kvlock.LockerConfig{})
				first := testbed.Begin(t, idler, "l", flight.BeginOptions{})
				check.OK(t, first.Release(t.Context()))
				testbed.Release(t, testbed.Acquire(t, locks, "lock"))
				remake(t, b)
				busy, other := b.Flight(t, flight.Config{}), b.Locker(t, kvlock.LockerConfig{})
				for range 50 {
					check.OK(t, testbed.Begin(t, busy, key, flight.BeginOptions{}).Release(t.Context()))
					testbed.Release(t, testbed.Acquire(t, other, "lock"))
				}
				last, lastLock := testbed.Begin(t, busy, "l", flight.BeginOptions{}), testbed.Acquire(t, other, "lock")
				check.OK(t, last.Release(t.Context()))
				testbed.Release(t, lastLock)
				natstest.Pass(idle)
				now := testbed.Begin(t, idler, "l", flight.BeginOptions{}).Token()
				check.That(t, now.Compare(last.Token()) > 0, "the idle process has claim token %s after %s", now, last.Token())
				lease := testbed.Acquire(t, locks, "lock")
				now = lease.Token()
				check.That(t, now.Compare(lastLock.Token()) > 0, "the idle process has lock token %s after %s", now, lastLock.Token())
				testbed.Release(t, lease)
			})
		}
	}
}

// When a bucket is recreated its holder loses a lock as soon as another has it, or else with its next renewal. Pushes may be lost.
func TestHolderLosesALockOfAFormerBucket(t *testing.T) {
	for _, how := range []string{"from a file", "by CreateBucket"} {
		for pushes, lost := range map[string]bool{"pushed": false, "pushes lost": true} {
			testbed.RunInBubble(t, how+"/"+pushes, func(t *testing.T, b *testbed.Bed) {
				p := natstest.NewProxy(t, b.Srv)
				if lost {
					p.Filter(testbed.LosePushes)
				}
				old, next := b.Locker(t, kvlock.LockerConfig{TTL: 30 * time.Second}, p.Through()), b.Locker(t, kvlock.LockerConfig{})
				lease := testbed.Acquire(t, old, "l")
				remakes[how](t, b)
				start := time.Now()
				testbed.Release(t, testbed.Acquire(t, next, "l"))
				<-lease.Context().Done()
				check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
				limit := time.Second
				if lost {
					limit += 10 * time.Second // a third of the TTL
				}
				testbed.Took(t, "the former holder lost the lock", start, 0, limit)
				testbed.Release(t, testbed.Acquire(t, next, "l"))
			})
		}
	}
}

// Where the revisions of two buckets coincide a former holder does not evict the present one: CreateBucket makes no buckets whose
// revisions do, and after a reconnection the holder asks before it writes.
func TestRevisionsCoincide(t *testing.T) {
	fromFile := func(t *testing.T, b *testbed.Bed) {
		t.Helper()
		b.RecreateBucket(t, time.Millisecond)
	}
	for name, made := range map[string]struct {
		bucket  func(t *testing.T, b *testbed.Bed)
		between func(p *natstest.Proxy)
	}{
		"by CreateBucket": {remakes["by CreateBucket"], func(*natstest.Proxy) {}},
		"from a file, after a reconnection": {fromFile, func(p *natstest.Proxy) {
			p.Heal() // closes the connections
			natstest.Pass(3 * time.Second)
		}},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			made.bucket(t, b)
			p := natstest.NewProxy(t, b.Srv)
			p.Filter(testbed.LosePushes)
			old, oldLocks := b.Flight(t, flight.Config{}, p.Through()), b.Locker(t, kvlock.LockerConfig{}, p.Through())
			claim, lease := testbed.Begin(t, old, "claim", flight.BeginOptions{}), testbed.Acquire(t, oldLocks, "l")
			made.bucket(t, b)
			present, presentLocks := b.Flight(t, flight.Config{}), b.Locker(t, kvlock.LockerConfig{})
			now, held := testbed.Begin(t, present, "claim", flight.BeginOptions{}), testbed.Acquire(t, presentLocks, "l")
			made.between(p)
			check.ErrorIs(t, check.Err(claim.Complete(t.Context(), []byte("old"), 0)), kvlock.ErrLost)
			<-lease.Context().Done() // after a renewal was tried
			testbed.Complete(t, now, "new")
			check.That(t, held.Context().Err() == nil, "the present holder lost the lock: %v", context.Cause(held.Context()))
			entry := testbed.Get(t, present, "claim")
			check.That(t, string(entry.Value) == "new", "the result is %q", entry.Value)
			testbed.Release(t, held)
		})
	}
}

// A mark that may not look up the stream ends long before its deadline, and says why.
func TestMarkRestoredWithoutPermission(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv, natstest.Restricted(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		err := kvlock.MarkRestored(ctx, js, testbed.Bucket)
		check.That(t, err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "ermissions"), "marked: %v", err)
	}, natstest.Restrict(server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.INFO.KV_" + testbed.Bucket}},
	}))
}
