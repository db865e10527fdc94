package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
)

// openLocks runs a server with a bucket, for one example.
func openLocks() (l *kvlock.Locker, g *kvlock.Guard, end func()) {
	ctx := context.Background()
	js, stop := testbed.Serve("locks")
	l, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks", Instance: "kitchen-1"})
	must(err)
	g, err = kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: "locks"})
	must(err)
	return l, g, func() {
		g.Close()
		l.Close()
		stop()
	}
}

// Do runs a function that no other process runs at the same time, and gives it a token for its writes.
func ExampleLocker() {
	l, _, end := openLocks()
	defer end()
	err := l.Do(context.Background(), "oven", func(ctx context.Context, token kvlock.Token) error {
		_, err := l.TryAcquire(ctx, "oven", kvlock.AcquireOptions{})
		fmt.Println(errors.Is(err, kvlock.ErrHeld), token != kvlock.Token{})
		return nil
	})
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
}

// A lease has a context that ends when the lock is not held any more.
func ExampleLease() {
	l, _, end := openLocks()
	defer end()
	ctx := context.Background()
	lease, err := l.Acquire(ctx, "oven", kvlock.AcquireOptions{Metadata: map[string]string{"dish": "bread"}})
	must(err)
	lock, err := l.Inspect(ctx, "oven")
	must(err)
	fmt.Println(lock.Holder, lock.Metadata["dish"], lock.Token == lease.Token(), lease.Context().Err())
	must(lease.Release(ctx))
	fmt.Println(context.Cause(lease.Context()))
	// Output:
	// kitchen-1 bread true <nil>
	// kvlock: lock released
}

// List goes over the locks that are held.
func ExampleLocker_List() {
	l, _, end := openLocks()
	defer end()
	ctx := context.Background()
	for _, name := range []string{"oven.1", "oven.2", "sink"} {
		if _, err := l.TryAcquire(ctx, name, kvlock.AcquireOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	for lock, err := range l.List(ctx, "oven") {
		must(err)
		fmt.Println(lock.Name, lock.Holder)
	}
	// Output:
	// oven.1 kitchen-1
	// oven.2 kitchen-1
}

// A Guard refuses a write of an earlier holder than the one that wrote last.
func ExampleGuard() {
	l, g, end := openLocks()
	defer end()
	ctx := context.Background()
	paused, err := l.Acquire(ctx, "oven", kvlock.AcquireOptions{})
	must(err)
	next, err := l.Steal(ctx, "oven", kvlock.AcquireOptions{})
	must(err)
	fmt.Println(g.Put(ctx, "temperature", next.Token(), []byte("220")))
	fmt.Println(errors.Is(g.Put(ctx, "temperature", paused.Token(), []byte("180")), kvlock.ErrFenced))
	now, err := g.Get(ctx, "temperature")
	must(err)
	fmt.Println(string(now.Value))
	// Output:
	// <nil>
	// true
	// 220
}
