package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
)

// Leader election: candidates wait for one lock, its holder leads until its context ends, and all members can see where.
func Example_leaderElection() {
	js, stop := testbed.Serve("locks")
	defer stop()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	candidate := func(address string) *kvlock.Locker {
		l, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks", Instance: address})
		must(err)
		return l
	}
	first, second := candidate("10.0.0.1:80"), candidate("10.0.0.2:80")
	defer second.Close()
	show := func() {
		leader, err := second.Inspect(ctx, "leader")
		must(err)
		fmt.Println("the leader is", leader.Holder)
	}

	_, err := first.Acquire(ctx, "leader", kvlock.AcquireOptions{})
	must(err)
	show()
	go first.Close()                                                          // as when it is deployed again
	must(second.Do(ctx, "leader", func(context.Context, kvlock.Token) error { // waits for its turn
		show()
		return nil
	}))
	// Output:
	// the leader is 10.0.0.1:80
	// the leader is 10.0.0.2:80
}

// A cron singleton: three machines start the same job at nine, and one of them runs it.
func Example_cronSingleton() {
	js, stop := testbed.Serve("cron")
	defer stop()
	ctx := context.Background()
	var runs atomic.Int64
	report := func(context.Context) ([]byte, error) {
		runs.Add(1)
		return []byte("sent"), nil
	}
	var machines sync.WaitGroup
	for range 3 {
		machines.Go(func() {
			f, err := flight.New(ctx, js, flight.Config{Bucket: "cron"})
			must(err)
			defer f.Close()
			tick := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC) // as cron names it, whatever the machine's clock is
			key := "daily-report." + tick.Format("2006-01-02T1504")
			_, err = f.Do(ctx, key, report, flight.DoOptions{TTL: 24 * time.Hour}) // a machine that is late finds it done
			must(err)
		})
	}
	machines.Wait()
	fmt.Println("runs:", runs.Load())
	// Output: runs: 1
}

// Stampede protection: a value expires, and a hundred requests in two processes need it at once. It is computed once.
func Example_stampedeProtection() {
	js, stop := testbed.Serve("cache")
	defer stop()
	ctx := context.Background()
	var queries atomic.Int64
	query := func(context.Context) ([]byte, error) {
		queries.Add(1)
		return []byte("soup"), nil
	}
	process := func() {
		f, err := flight.New(ctx, js, flight.Config{Bucket: "cache"})
		must(err)
		defer f.Close()
		var requests sync.WaitGroup
		for range 50 {
			requests.Go(func() {
				menu, err := f.Do(ctx, "menu", query, flight.DoOptions{TTL: time.Minute})
				must(err)
				if string(menu.Value) != "soup" {
					fmt.Println("got", string(menu.Value))
				}
			})
		}
		requests.Wait()
	}
	var processes sync.WaitGroup
	processes.Go(process)
	processes.Go(process)
	processes.Wait()
	fmt.Println("queries:", queries.Load())
	// Output: queries: 1
}

// A semaphore: a licence permits two renderings at once, on whatever machines.
func ExampleSemaphore() {
	js, stop := testbed.Serve("locks")
	defer stop()
	ctx := context.Background()
	var now, most atomic.Int64
	render := func(ctx context.Context) error {
		if n := now.Add(1); n > 2 {
			most.Store(n)
		}
		defer now.Add(-1)
		return ctx.Err() // it ends with the permit
	}
	var machines sync.WaitGroup
	for range 3 {
		machines.Go(func() {
			s, err := kvlock.NewSemaphore(ctx, js, kvlock.SemaphoreConfig{Bucket: "locks", Name: "licence", Permits: 2})
			must(err)
			defer s.Close()
			for range 5 {
				must(s.Do(ctx, "renderer", render))
			}
		})
	}
	machines.Wait()
	fmt.Println("more than two at once:", most.Load() > 0)
	// Output: more than two at once: false
}

// A rate-limited fetch: a provider permits ten requests a minute for each account, after a burst of five, to all machines.
func ExampleRateLimiter() {
	js, stop := testbed.Serve("locks")
	defer stop()
	ctx := context.Background()
	r, err := kvlock.NewRateLimiter(ctx, js, kvlock.RateLimiterConfig{Bucket: "locks", Name: "provider", Rate: 10, Per: time.Minute, Burst: 5})
	must(err)
	defer r.Close()
	fetch := func(account string) {
		must(r.Wait(ctx, account)) // not at all for the first five
		fmt.Println("fetched for", account)
	}
	for range 5 {
		fetch("account-7")
	}
	fetch("account-8")
	// Output:
	// fetched for account-7
	// fetched for account-7
	// fetched for account-7
	// fetched for account-7
	// fetched for account-7
	// fetched for account-8
}

// must ends an example that failed.
func must(err error) {
	if err != nil && !errors.Is(err, kvlock.ErrClosed) {
		panic(err)
	}
}
