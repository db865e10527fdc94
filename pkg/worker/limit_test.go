package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// liveHandlers counts the handlers of each key whose contexts are live.
type liveHandlers struct {
	mu   sync.Mutex
	live map[string][]context.Context
	most map[string]int
}

func newLiveHandlers() *liveHandlers {
	return &liveHandlers{live: map[string][]context.Context{}, most: map[string]int{}}
}

// peak is the most handlers of a key that there were at once.
func (c *liveHandlers) peak(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[key]
}

// enter counts a handler until it calls leave.
func (c *liveHandlers) enter(ctx context.Context, key string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.live[key] = append(c.live[key], ctx)

	n := 0
	for _, other := range c.live[key] {
		if other.Err() == nil {
			n++
		}
	}

	c.most[key] = max(c.most[key], n)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		c.live[key] = slices.DeleteFunc(c.live[key], func(other context.Context) bool { return other == ctx })
	}
}

// keyOf is the second token of a subject.
func keyOf(info worker.Info, _ nats.Header, _ []byte) string {
	return strings.Split(info.Subject, ".")[1]
}

// TestLimitIsNeverExceeded has workers of several connections work jobs of few keys under several limits. The handlers do whatever a
// handler can do.
func TestLimitIsNeverExceeded(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const keys, workers = 4, 4

		jobs := 600
		if testing.Short() {
			jobs = 200
		}

		seed := rand.Uint64()
		t.Logf("seed %d", seed)

		most := 1 + int(seed%5)
		b := setup(t, srv)
		c := newLiveHandlers()

		var left atomic.Int32

		left.Store(int32(jobs))

		all := make(chan struct{})
		policy := worker.Policy{
			Backoff: func(int) time.Duration { return 0 },
			Limits: []worker.Limit{
				{Concurrency: 2 * most, Name: "z"}, {Concurrency: most, Key: keyOf, Name: "host"}, {Burst: 10, Name: "m", Per: time.Second, Rate: 500},
			},
			Timeout: 20 * time.Millisecond,
		}

		handle := func(ctx context.Context, job *worker.Job[order]) error {
			defer c.enter(ctx, "all")()
			defer c.enter(ctx, keyOf(job.Info, nil, nil))()

			r := rand.New(rand.NewPCG(seed, job.Sequence<<8+uint64(job.Deliveries)))

			switch r.IntN(20) {
			case 0:
				return worker.Retry(0, nil)
			case 1:
				panic("as it happens")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			case 3:
				return worker.Snooze(0)
			default:
				retry.Sleep(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
			}

			if left.Add(-1) == 0 {
				close(all)
			}
			return nil
		}

		for i := range jobs {
			b.publish(t, fmt.Sprintf("jobs.%d.%d", i%keys, i), `{}`)
		}

		for range workers {
			_, js := natstest.Connect(t, b.srv)
			run(t, js, b.config(t, func(cfg *worker.Config) { cfg.Concurrency, cfg.MaxWaiting = 16, 40 }), policy, handle)
		}

		receive(t, all, "all jobs")

		c.mu.Lock()
		defer c.mu.Unlock()

		for key, n := range c.most {
			want := map[bool]int{false: most, true: 2 * most}[key == "all"]
			check.That(t, n <= want, "%d handlers of key %s at once, want at most %d", n, key, want)
		}
	})
}

// TestLimitIsUsed has as many jobs run at once as may, over two workers, and one of each of many keys, whatever they are made of.
func TestLimitIsUsed(t *testing.T) {
	key := func(info worker.Info, _ nats.Header, _ []byte) string {
		return fmt.Sprint("* .>\n$JS.", strings.Repeat("x", 1000), info.Subject)
	}
	for name, test := range map[string]struct {
		limit worker.Limit
		most  time.Duration
	}{
		"one limit": {worker.Limit{Concurrency: 6, Name: "all"}, 3 * time.Minute}, "of keys": {worker.Limit{Concurrency: 1, Key: key, Name: "any"}, time.Minute},
	} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			b.publishN(t, 18)
			began := time.Now()
			for range 2 {
				_, js := natstest.Connect(t, b.srv)
				run(t, js, b.config(t), worker.Policy{Limits: []worker.Limit{test.limit}}, func(context.Context, *worker.Job[order]) error {
					natstest.Pass(time.Minute)
					return nil
				})
			}
			b.drain(t)
			within(t, "18 jobs of a minute", time.Since(began), 0, test.most+30*time.Second)
		})
	}
}

// TestFloodOfOneKeyHoldsUpNoOther has 5,000 jobs of a key that has one permit before those of
// others.
func TestFloodOfOneKeyHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const flood, others = 5000, 50

		for i := range flood {
			b.queue(t, fmt.Sprintf("jobs.flood.%d", i), []byte(`{}`))
		}

		for i := range others {
			b.queue(t, fmt.Sprintf("jobs.other%d.1", i), []byte(`{}`))
		}

		receive(t, b.js.PublishAsyncComplete(), "the jobs to be published")

		ran := make(chan *worker.Job[order], others)
		hold := make(chan struct{})
		policy := worker.Policy{Limits: []worker.Limit{{Concurrency: 1, Key: keyOf, Name: "host"}}}

		run(t, b.js, b.config(t), policy, func(ctx context.Context, job *worker.Job[order]) error {
			if strings.HasPrefix(job.Subject, "jobs.flood.") {
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return ctx.Err()
			}

			ran <- job
			return nil
		})

		for range others {
			check.Equal(t, receive(t, ran, "a job of another key").Attempt, 1, "attempt")
		}

		close(hold)
	})
}

// TestWaitingUsesNoAttempt looks at jobs that were given back again and again.
func TestWaitingUsesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const jobs = 40

		b.publishN(t, jobs)

		var deliveries, runs atomic.Int32

		policy := worker.Policy{Limits: []worker.Limit{{Concurrency: 1, Name: "all"}}, MaxAttempts: 1}
		cfg := b.config(t, func(cfg *worker.Config) { cfg.MaxWaiting = 2 })
		began := time.Now()

		run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
			check.Equal(t, job.Attempt, 1, "attempt")

			deliveries.Add(int32(job.Deliveries))
			runs.Add(1)
			natstest.Pass(time.Second)
			return nil
		})

		b.drain(t)

		t.Logf("%d deliveries of %d jobs, %s for %d seconds' work", deliveries.Load(), jobs, time.Since(began), jobs)

		check.Equal(t, runs.Load(), jobs, "runs of jobs: waiting used up the attempt of some")

		check.That(t, deliveries.Load() != jobs, "no job was given back")
	})
}

// TestTurnIsForTheJobsOfItsLimit: a turn is waited for by the jobs that the limit covers, under a name that the policy has.
func TestTurnIsForTheJobsOfItsLimit(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		for _, subject := range []string{"jobs.free", "jobs.far.1", "jobs.far.2"} {
			b.publish(t, subject, `{}`)
		}

		check.ErrorIs(t, worker.Turn(t.Context(), "far"), nil)

		type turn struct {
			subject string
			err     error
			took    time.Duration
		}

		began := time.Now()
		turns := make(chan turn, 3)
		policy := worker.Policy{Limits: []worker.Limit{{
			Concurrency: 1, Name: "far", Per: time.Hour, Rate: 1, Subjects: "jobs.far.*", Turns: true,
		}}}

		run(t, b.js, b.config(t), policy, func(ctx context.Context, job *worker.Job[order]) error {
			check.ErrorContains(t, worker.Turn(ctx, "near"), `no limit of that name`)

			wait, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()

			err := worker.Turn(wait, "far")
			turns <- turn{job.Subject, err, time.Since(began)}
			return nil
		})

		// The two jobs of the limit may begin in either order.
		late := 0

		for range 3 {
			switch got := receive(t, turns, "the jobs"); {
			case got.subject != "jobs.free" && errors.Is(got.err, context.DeadlineExceeded):
				late++
			case got.err != nil || got.took > time.Second:
				t.Errorf("%s: %v after %s", got.subject, got.err, got.took)
			}
		}

		check.Equal(t, late, 1, "jobs past the rate")
	})
}
