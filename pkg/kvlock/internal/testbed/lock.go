package testbed

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Locker returns a Locker with a separate connection, as in another process.
func (b *Bed) Locker(t testing.TB, cfg kvlock.LockerConfig, opts ...nats.Option) *kvlock.Locker {
	t.Helper()
	_, js := natstest.Connect(t, b.Srv, opts...)
	return LockerOn(t, js, cfg)
}

// ProxiedLocker is Locker on a connection through a proxy.
func (b *Bed) ProxiedLocker(t testing.TB, cfg kvlock.LockerConfig) (*kvlock.Locker, *natstest.Proxy) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	return b.Locker(t, cfg, p.Through()), p
}

// LockerOn returns a Locker on a connection.
func LockerOn(t testing.TB, js jetstream.JetStream, cfg kvlock.LockerConfig) *kvlock.Locker {
	t.Helper()
	cfg.Bucket, cfg.Logger, cfg.OpTimeout = Bucket, Quiet(cfg.Logger), opTimeout(cfg.OpTimeout)
	l, err := kvlock.NewLocker(t.Context(), js, cfg)
	return Closed(t, l, err)
}

// Guard returns a Guard with a separate connection.
func (b *Bed) Guard(t testing.TB, cfg kvlock.GuardConfig, opts ...nats.Option) *kvlock.Guard {
	t.Helper()
	_, js := natstest.Connect(t, b.Srv, opts...)
	cfg.Bucket, cfg.OpTimeout = Bucket, opTimeout(cfg.OpTimeout)
	g, err := kvlock.NewGuard(t.Context(), js, cfg)
	return Closed(t, g, err)
}

// Acquire takes a lock.
func Acquire(t testing.TB, l *kvlock.Locker, name string) *kvlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), name, kvlock.AcquireOptions{})
	check.Require(t, err == nil, "acquire %s: %v", name, err)
	return lease
}

// Release gives a lock up.
func Release(t testing.TB, l *kvlock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("release %s: %v", l.Name(), err)
	}
}

// Waiting is a call of Acquire under way.
type Waiting struct {
	Lease *kvlock.Lease
	Err   error
	Done  chan struct{}
}

// Acquiring starts an Acquire, which the test does not outlive.
func Acquiring(t *testing.T, l *kvlock.Locker, name string, opts kvlock.AcquireOptions) *Waiting {
	t.Helper()
	w := &Waiting{Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Lease, w.Err = l.Acquire(t.Context(), name, opts)
	}()
	t.Cleanup(func() { <-w.Done }) // Acquire ends at the latest with the test's context
	return w
}

// Queue starts an Acquire and returns when its place is in the record: n places in all.
func Queue(t *testing.T, l *kvlock.Locker, name string, n int, opts kvlock.AcquireOptions) *Waiting {
	t.Helper()
	w := Acquiring(t, l, name, opts)
	for Places(Inspect(t, l, name)) != n {
		select {
		case <-w.Done:
			t.Fatalf("acquired %v, %v instead of waiting", w.Lease, w.Err)
		case <-Within(t).Done():
			t.Fatalf("%d places in the queue, want %d", Places(Inspect(t, l, name)), n)
		case <-time.After(time.Millisecond):
		}
	}
	return w
}

// Got waits for the lease and returns it.
func (w *Waiting) Got(t testing.TB) *kvlock.Lease {
	t.Helper()
	Await(t, w.Done, "a waiter")
	check.OK(t, w.Err)
	return w.Lease
}

// Inspect reads a lock.
func Inspect(t testing.TB, l *kvlock.Locker, name string) kvlock.Lock {
	t.Helper()
	return check.Must(l.Inspect(t.Context(), name))(t)
}

// Places returns the number of waiters for a lock.
func Places(l kvlock.Lock) (n int) {
	for _, w := range l.Queue {
		n += w.Waiters
	}
	return n
}

// GotEventually waits for the lease, however long that takes.
func GotEventually(t *testing.T, w *Waiting) *kvlock.Lease {
	t.Helper()
	<-w.Done
	check.OK(t, w.Err)
	return w.Lease
}

// CuttableLocker makes a Locker that is cut off, without its process knowing, once cutOff is called.
func CuttableLocker(t *testing.T, b *Bed, cfg kvlock.LockerConfig) (l *kvlock.Locker, cutOff func()) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	l = b.Locker(t, cfg, p.Through())
	return l, p.Partition
}
