package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestStepsUnderRandomFaults works jobs with three workers whose connections lose, repeat
// and refuse messages, are cut off for longer than AckWait, and break; handlers fail,
// panic, and take their time. Whatever happens a step that has returned a result returns
// the same in every attempt, and each job completes.
func TestStepsUnderRandomFaults(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()

		natstest.RunBubble(t, fmt.Sprint("seed ", seed), func(t *testing.T, srv *natsrun.Server) { randomSteps(t, srv, seed) })
	}
}

func randomSteps(t *testing.T, srv *natsrun.Server, seed uint64) {
	t.Helper()

	const (
		jobs    = 60
		workers = 3
	)

	b := setup(t, srv)
	l := newStepRecorder()

	var (
		mu        sync.Mutex
		random    = rand.New(rand.NewPCG(seed, 0))
		completed = map[string]int{}
		outcomes  = map[worker.Outcome]int{}
		all       = make(chan struct{})
	)

	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}

	l.slow = func() {
		if draw(3) == 0 {
			natstest.Pass(time.Duration(draw(8000)) * time.Millisecond)
		}
	}

	handler := func(ctx context.Context, job *worker.Job[order]) error {
		for i := range 1 + job.Args.N%6 {
			if _, err := l.run(ctx, job, fmt.Sprint("step ", i)); err != nil {
				return err
			}

			switch draw(12) {
			case 0:
				return errors.New("failed")
			case 1:
				panic("panicked")
			case 2:
				return worker.Snooze(time.Second)
			case 3, 4, 5:
				natstest.Pass(time.Duration(draw(10)) * time.Second)
			}
		}
		return nil
	}

	settled := func(s worker.Settlement) {
		mu.Lock()
		defer mu.Unlock()

		outcomes[s.Outcome]++

		if s.Outcome == worker.OutcomeCompleted || s.Outcome == worker.OutcomeUnknown && s.Err == nil {
			completed[s.ID]++
			if completed[s.ID] == 1 && len(completed) == jobs {
				close(all)
			}
		}
	}

	proxies := make([]*natstest.Proxy, workers)
	for i := range proxies {
		proxies[i] = natstest.NewProxy(t, srv)
		_, js := natstest.Connect(t, srv, proxies[i].Through())
		cfg := b.config(t, func(c *worker.Config) {
			c.Concurrency, c.Hooks.Settled, c.SettleTimeout = 5, settled, 10*time.Second
			c.HardStop = 20 * time.Second // an attempt whose job another has ended may be in the longest wait above
		})
		run(t, js, cfg, worker.Policy{Backoff: worker.Exponential(time.Second, 5*time.Second), MaxAttempts: 1000}, handler)
	}

	b.publishN(t, jobs)

	stop := make(chan struct{})
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(1+draw(1000)) * time.Millisecond):
			}

			disturb(proxies[draw(workers)], draw)
		}
	}()

	<-all
	close(stop)
	<-ended

	for _, p := range proxies {
		p.Filter(nil)
		p.Heal()
	}

	for waited := time.Duration(0); b.left(t) > 0; waited += time.Second { // those whose outcome was unknown run again
		natstest.Pass(time.Second)

		if waited > time.Hour {
			t.Fatalf("%d jobs left", b.left(t))
		}
	}

	mu.Lock()
	t.Logf("%v", outcomes) // the last of them may be told of just now
	mu.Unlock()
	l.check(t)
}

// disturb does something to a connection.
func disturb(p *natstest.Proxy, draw func(int) int) {
	switch draw(6) {
	case 0:
		p.Hit(requests(stepKeys), natstest.ReplyLost, 1+draw(3))
	case 1:
		p.Hit(requests(stepKeys), natstest.WriteLost, 1+draw(3))
	case 2:
		p.Hit(requests(stepKeys), natstest.RefusedApplied, 1+draw(3))
	case 3: // a breath, or longer than AckWait
		p.Partition()
		natstest.Pass(time.Duration(1+draw(12000)) * time.Millisecond)
		p.Heal()
	case 4:
		p.Cut()
		p.Heal()
	default:
		p.Filter(nil)
	}
}

// TestStepsWhileLeadersDie kills, freezes and deposes the leader of the bucket of three
// nodes while jobs with steps are worked.
func TestStepsWhileLeadersDie(t *testing.T) {
	t.Parallel()

	const jobs = 300

	cluster := natstest.Cluster(t, 3)
	b := onCluster(t, cluster)

	var (
		l         = newStepRecorder()
		mu        sync.Mutex
		completed = map[string]bool{}
		outcomes  = map[worker.Outcome]int{}
		half, all = make(chan struct{}), make(chan struct{})
	)

	settled := func(s worker.Settlement) {
		mu.Lock()
		defer mu.Unlock()

		outcomes[s.Outcome]++

		check.That(t, s.Outcome != worker.OutcomeDead, "%s is dead: %v", s.ID, s.Err)

		if s.Err == nil && !completed[s.ID] {
			completed[s.ID] = true

			switch len(completed) {
			case jobs / 10:
				close(half)
			case jobs:
				close(all)
			}
		}
	}

	for range 2 {
		_, js := natstest.ConnectURL(t, cluster.URLs())
		cfg := b.config(t, func(c *worker.Config) {
			c.AckWait, c.Concurrency, c.Hooks.Settled, c.SettleTimeout = 2*time.Second, 4, settled, 20*time.Second
		})
		run(t, js, cfg, worker.Policy{MaxAttempts: 1000, Backoff: worker.Exponential(100*time.Millisecond, time.Second)},
			func(ctx context.Context, job *worker.Job[order]) error {
				for i := range 5 {
					if _, err := l.run(ctx, job, fmt.Sprint("step ", i)); err != nil {
						return err
					}
				}

				if job.Deliveries%2 == 1 && job.Args.N%3 == 0 && job.Attempt < 3 {
					return errors.New("again")
				}
				return nil
			})
	}

	publisher := check.Must(jetstream.New(b.nc, jetstream.WithDefaultTimeout(time.Second)))(t)

	published := make(chan struct{})

	go func() {
		defer close(published)

		for i := range jobs {
			err := natstest.UntilAnswered(t, func(ctx context.Context) error {
				return check.Err(publisher.Publish(ctx, fmt.Sprintf("jobs.%d", i), fmt.Appendf(nil, `{"n":%d}`, i), jetstream.WithMsgID(fmt.Sprint(i))))
			})
			check.ErrorIs(t, err, nil)
		}
	}()

	receive(t, half, "the first jobs")

	leader := check.Must(cluster.StreamLeader(t.Context(), "KV_jobs"))(t)

	check.ErrorIs(t, errors.Join(leader.Kill(), leader.Start(t.Context())), nil)

	check.ErrorIs(t, errors.Join(cluster.WaitReady(t.Context()), cluster.StepDown(t.Context(), "KV_jobs")), nil)

	<-published
	receive(t, all, "all jobs")
	mu.Lock()
	t.Logf("%v", outcomes) // the last of them may be told of just now
	mu.Unlock()
	l.check(t)
}
