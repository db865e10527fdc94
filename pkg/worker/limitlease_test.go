package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// oneAtATime lets one job run in all workers.
var oneAtATime = worker.Policy{Limits: []worker.Limit{{Concurrency: 1, Name: "all"}}}

// TestPermitOfALostWorkerComesBack has a worker die, and one be cut off, with the only
// permit. Its handler's context ends before the next job starts.
func TestPermitOfALostWorkerComesBack(t *testing.T) {
	for _, dies := range []bool{true, false} {
		runBubble(t, fmt.Sprintf("dies=%t", dies), func(t *testing.T, b *bundle) {
			p := natstest.NewProxy(t, b.srv)
			nc, js := natstest.Connect(t, b.srv, p.Through())
			started := make(chan context.Context, 1)
			back := make(chan struct{})
			first := run(t, js, b.config(t, stopAtOnce), oneAtATime, func(ctx context.Context, _ *worker.Job[order]) error {
				started <- ctx
				<-ctx.Done()
				<-back
				return ctx.Err()
			})

			b.publish(t, "jobs.1", `{}`)
			held := <-started

			const others = 10 // some of which wait here, and some there

			var again []string

			done := make(chan struct{}, 1+others)
			run(t, b.js, b.config(t), oneAtATime, func(_ context.Context, job *worker.Job[order]) error {
				check.That(t, held.Err() != nil, "two handlers run under one permit")

				again = append(again, job.Subject)
				done <- struct{}{}
				return nil
			})

			natstest.Pass(time.Second)

			for range others {
				b.publish(t, "jobs.2", `{}`)
			}

			natstest.Pass(time.Minute) // they wait, and the first runs on

			lost := time.Now()

			if dies {
				nc.Close()
			} else {
				p.Partition()
			}

			<-done

			within(t, "the permit's return", time.Since(lost), 0, 11*time.Second) // about 2 AckWaits of 5s at most

			for range others {
				<-done
			}

			cause := (&worker.LimitLostError{})
			check.That(t, dies || errors.As(context.Cause(held), &cause), "the context ended with %v, want a LimitLostError", context.Cause(held))

			check.That(t, len(again) == 1+others, "ran %v, want all jobs", again)

			p.Heal()
			close(back)

			err := first.wait()
			check.That(t, dies == errors.Is(err, nats.ErrConnectionClosed), "Run: %v", err)
		})
	}
}

// TestPermitIsReturned ends a handler in every way. The next job starts at once: it need not wait for the lease of the permit to
// end.
func TestPermitIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		handler := func(ctx context.Context, job *worker.Job[order]) error {
			switch job.Subject {
			case "jobs.error":
				return errors.New("as it happens")
			case "jobs.panic":
				panic("as it happens")
			case "jobs.timeout":
				<-ctx.Done()
				return ctx.Err()
			case "jobs.snooze":
				return worker.Snooze(time.Hour)
			case "jobs.cancel":
				return worker.Discard(nil)
			case "jobs.goexit":
				runtime.Goexit()
			}
			return nil
		}

		policy := worker.Policy{Limits: oneAtATime.Limits, MaxAttempts: 1, Timeout: time.Millisecond}
		_, js := natstest.Connect(t, b.srv)
		quiet := run(t, js, b.config(t), policy, handler)

		cfg, settled := b.reporting(t)
		run(t, b.js, cfg, policy, handler)
		natstest.Pass(time.Second)

		check.ErrorIs(t, quiet.wait(), nil)

		for _, how := range []string{"ok", "error", "panic", "timeout", "snooze", "cancel", "goexit", "undecodable", "ok"} {
			payload := `{}`
			if how == "undecodable" {
				payload = `no json`
			}

			began := time.Now()

			b.publish(t, "jobs."+how, payload)

			check.Equal(t, (<-settled).Subject, "jobs."+how, "settled")
			within(t, how, time.Since(began), 0, 100*time.Millisecond)
		}
	})
}

// TestStoppedWorkerLeavesItsPermits stops a worker in mid-job, whose handler does not care,
// and with jobs that wait. All go on elsewhere at once.
func TestStoppedWorkerLeavesItsPermits(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		_, js := natstest.Connect(t, b.srv)
		started := make(chan struct{}, 1)
		back := make(chan struct{})
		waits := make(chan bool, 100)
		cfg := b.config(t, stopAtOnce, func(c *worker.Config) {
			c.AckWait = time.Minute
			c.Hooks.Waiting = func(_ worker.Info, w bool) { waits <- w }
		})
		first := run(t, js, cfg, oneAtATime, sendEach(started, nothing, back))

		b.publishN(t, 5)
		<-started

		for range 4 {
			check.That(t, <-waits, "a job stopped waiting")
		}

		stopped := time.Now()

		stuck := (&worker.StuckError{})
		check.That(t, errors.As(first.wait(), &stuck), "the handler counts as ended")

		done := make(chan int, 10)
		run(t, b.js, cfg, oneAtATime, sendEach(done, attemptOf))

		for range 5 {
			check.Equal(t, <-done, 1, "attempt")
		}

		within(t, "the start of the jobs elsewhere", time.Since(stopped), 0, 10*time.Second)

		close(back)
	})
}

// TestLimitHoldsThroughFaults loses writes and answers of two workers, and restarts the
// server.
func TestLimitHoldsThroughFaults(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const jobs, most = 200, 3

		b := setup(t, srv)
		c := newLiveHandlers()
		policy := worker.Policy{Limits: []worker.Limit{{Concurrency: most, Name: "all"}}, MaxAttempts: 100}

		once, begun, all := make(map[uint64]bool), make(chan struct{}), make(chan struct{})

		var mu sync.Mutex

		handle := func(ctx context.Context, job *worker.Job[order]) error {
			leave := c.enter(ctx, "all")
			defer leave()

			retry.Sleep(ctx, time.Millisecond)

			mu.Lock()
			defer mu.Unlock()

			if ctx.Err() == nil && !once[job.Sequence] {
				once[job.Sequence] = true

				switch len(once) {
				case jobs / 4:
					close(begun) // so that nothing is being made while the server stops
				case jobs:
					close(all)
				}
			}
			return ctx.Err()
		}

		b.publishN(t, jobs)

		isLimit := func(f natstest.Frame) bool { return strings.Contains(f.Subject, ".limits.") }

		for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.RefusedApplied, natstest.WriteLost} {
			p, js := natstest.Proxied(t, b.srv)
			p.Hit(isLimit, how, 20)
			run(t, js, b.config(t, func(cfg *worker.Config) {
				cfg.AckWait, cfg.Concurrency, cfg.RequestTimeout = time.Second, 10, 50*time.Millisecond
			}), policy, handle)
		}

		receive(t, begun, "some jobs")
		b.restart(t)
		receive(t, all, "all jobs")

		n := c.peak("all")
		check.That(t, n <= most, "%d handlers at once, want at most %d", n, most) // a job that was delivered twice may run even now
	})
}

// TestPermitThatIsLeftWakesAnotherWorker has two workers of one slot each pass a permit to and
// fro: the job that waits in the one starts when that of the other ends, not when its worker
// looks again.
func TestPermitThatIsLeftWakesAnotherWorker(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started, end := make(chan time.Time), make(chan struct{})

		for range 2 {
			_, js := natstest.Connect(t, b.srv)
			cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 })
			run(t, js, cfg, oneAtATime, sendEach(started, timeNow, end))
		}

		b.publish(t, "jobs.0", `{}`)
		receive(t, started, "the first job")

		for i := range 5 {
			b.publish(t, fmt.Sprintf("jobs.%d", i+1), `{}`)
			natstest.Pass(3300 * time.Millisecond)

			left := time.Now()
			end <- struct{}{}

			within(t, "the start of the next job", receive(t, started, "the next job").Sub(left), 0, 200*time.Millisecond)
		}

		end <- struct{}{}
	})
}
