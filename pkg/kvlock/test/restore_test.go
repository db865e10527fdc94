package kvlock_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
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
		if repeated := takeLock(t, js); repeated.Compare(last) > 0 {
			t.Fatalf("token %s after %s: the restored stream is not as this test means it", repeated, last)
		}
		check.OK(t, kvlock.MarkRestored(t.Context(), js, bucket))
		marked := takeLock(t, js)
		if marked.Compare(last) <= 0 {
			t.Errorf("token %s after %s", marked, last)
		}
		check.OK(t, kvlock.MarkRestored(t.Context(), js, bucket))
		if again := takeLock(t, js); again.Compare(marked) <= 0 {
			t.Errorf("token %s after %s, when it was marked once more", again, marked)
		}
	})
}

// A process that ran while the stream was restored says so, and has greater tokens as soon as it is marked.
func TestRestoredUnderARunningProcess(t *testing.T) {
	t.Parallel()
	dir, backup := backedUp(t)
	before := natstest.Server(t, func(c *natsrun.Config) { c.Dir = dir })
	now := &current{}
	now.Store(before)
	_, js := connect(t, before, nats.InProcessServer(now))
	lines := &logged{}
	f := flightOn(t, js, flight.Config{Logger: lines.Logger(), OpTimeout: time.Minute})
	var last kvlock.Token
	for i := range 5 {
		last = begin(t, f, fmt.Sprintf("before%d", i), flight.BeginOptions{}).Token()
	}
	now.Store(natstest.Server(t, func(c *natsrun.Config) { c.Dir = backup }))
	before.Stop()

	begin(t, f, "restored", flight.BeginOptions{})
	if lines.Count("call MarkRestored") == 0 {
		t.Error("it was not said that the bucket was restored")
	}
	check.OK(t, kvlock.MarkRestored(t.Context(), js, bucket))
	begin(t, f, "learning", flight.BeginOptions{})
	if marked := begin(t, f, "marked", flight.BeginOptions{}).Token(); marked.Compare(last) <= 0 {
		t.Errorf("token %s after %s", marked, last)
	}
}

// backedUp is what a server keeps that has a bucket with a lock that was used once, and a copy of it.
func backedUp(t *testing.T) (dir, backup string) {
	t.Helper()
	dir, backup = t.TempDir(), filepath.Join(t.TempDir(), "backup")
	run(t, dir, func(js jetstream.JetStream) {
		check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket}))
		takeLock(t, js)
	})
	check.OK(t, os.CopyFS(backup, os.DirFS(dir)))
	return dir, backup
}

// current is the server that a process finds.
type current struct{ atomic.Pointer[natsrun.Server] }

func (c *current) InProcessConn() (net.Conn, error) { return c.Load().InProcessConn() }

// run runs f on a server that keeps what it has in dir, and stops it.
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
	l := lockerOn(t, js, kvlock.LockerConfig{})
	defer l.Close()
	lease := acquire(t, l, "l")
	release(t, lease)
	return lease.Token()
}
