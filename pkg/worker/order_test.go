package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

// orderLog is the independent recorder of ordered jobs: of each subject it wants handlers with live contexts one at a time, and
// their jobs in the order of the stream.
type orderLog struct {
	mu   sync.Mutex
	last map[string]uint64          // the latest job that started
	live map[string]context.Context // of its handler
	t    *testing.T
	ends int
}

func newOrderLog(t *testing.T) *orderLog {
	t.Helper()
	return &orderLog{last: make(map[string]uint64), live: make(map[string]context.Context), t: t}
}

func (d *orderLog) start(ctx context.Context, job *worker.Job[order]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.live[job.Subject]; other != nil && other.Err() == nil {
		d.t.Errorf("job %d of %s started beside job %d", job.Sequence, job.Subject, d.last[job.Subject])
	}
	check.That(d.t, job.Sequence >= d.last[job.Subject], "job %d of %s started after job %d", job.Sequence, job.Subject, d.last[job.Subject])
	d.last[job.Subject], d.live[job.Subject] = job.Sequence, ctx
}

func (d *orderLog) end(job *worker.Job[order]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, job.Subject)
	d.ends++
}

func (d *orderLog) ended() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ends
}

// TestJobsOfOneSubjectRunInOrder has the first job of a subject fail: the others wait for its retry, and those of other subjects
// do not. The first job of another subject is given up, which frees its subject.
func TestJobsOfOneSubjectRunInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg, done := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{Ordered: true}, func(_ context.Context, job *worker.Job[order]) error {
			switch {
			case job.Args.N == 1 && job.Attempt < 3:
				return worker.Retry(time.Second, errors.New("not yet"))
			case job.Args.N == 7:
				return worker.Discard(nil)
			}
			return nil
		})
		for i, subject := range []string{"jobs.a", "jobs.a", "jobs.a", "jobs.b", "jobs.a", "jobs.c", "jobs.d", "jobs.d"} {
			b.publish(t, subject, fmt.Sprintf(`{"n":%d}`, i+1))
		}
		var completed []uint64
		for len(completed) < 7 {
			if s := <-done; s.Outcome == worker.OutcomeCompleted {
				completed = append(completed, s.Sequence)
			}
		}
		slices.Sort(completed[:3]) // three subjects
		check.Equal(t, completed, []uint64{4, 6, 8, 1, 2, 3, 5})
		check.Equal(t, len(b.deadLetters(t)), 1, "dead letters")
	})
}

// TestOrderNeedsAWorkQueue refuses a stream in which jobs stay.
func TestOrderNeedsAWorkQueue(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}})
	check.ErrorContains(t, run(t, b.js, b.config(t), worker.Policy{Ordered: true}, complete).refuses(), "retention must be workqueue")
}

// TestOrderSurvivesFaults has several workers work many jobs of few subjects while heartbeats and answers are lost, workers are
// cut off for longer than AckWait, and handlers fail.
func TestOrderSurvivesFaults(t *testing.T) {
	const subjects, workers = 8, 3
	of := crash.Random(t)
	jobs, runs := 200, uint64(2)
	switch {
	case crash.Long():
		runs = 100
	case testing.Short():
		jobs, runs = 80, 1
	}
	for i := range runs {
		natstest.RunBubble(t, fmt.Sprint("run ", i), func(t *testing.T, srv *natsrun.Server) {
			random := of(i)
			b := setup(t, srv)
			d := newOrderLog(t)
			var mu sync.Mutex
			draw := func(n int) int { // the handlers do, too
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			work := func(ctx context.Context, job *worker.Job[order]) error {
				d.start(ctx, job)
				takes := draw(400)
				if takes < 40 {
					takes *= 200 // longer than AckWait
				}
				select {
				case <-time.After(time.Duration(takes) * time.Millisecond):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				d.end(job)
				if draw(10) == 0 {
					return worker.Retry(time.Duration(draw(3000))*time.Millisecond, errors.New("again"))
				}
				return nil
			}
			proxies := make([]*natstest.Proxy, workers)
			for n := range proxies {
				proxies[n] = natstest.NewProxy(t, srv)
				_, js := natstest.Connect(t, srv, proxies[n].Through())
				run(t, js, b.config(t, func(c *worker.Config) { c.Concurrency, c.MaxWaiting = 4, 20 }),
					worker.Policy{MaxAttempts: 1000, Ordered: true, Jitter: -1}, work)
			}
			for n := range jobs {
				b.publish(t, fmt.Sprintf("jobs.%d", draw(subjects)), fmt.Sprintf(`{"n":%d}`, n))
			}
			for b.storedMessages(t) > 0 {
				p := proxies[draw(workers)]
				switch draw(5) {
				case 0:
					p.Filter(natstest.Losing(isHeartbeat))
				case 1:
					p.Partition()
				case 2:
					p.Cut()
				case 3:
					p.Hit(requests("$JS.ACK."), natstest.ReplyLost, 1+draw(3))
				case 4:
					p.Hit(requests("$JS.API.STREAM.MSG.GET"), natstest.ReplyLost, 1+draw(3))
				}
				natstest.Pass(time.Duration(draw(9000)) * time.Millisecond)
				p.Cut() // a connection that was broken loses the last messages that were sent, not some in between
				p.Heal()
				p.Filter(nil)
				natstest.Pass(time.Duration(draw(3000)) * time.Millisecond)
			}
			check.That(t, d.ended() >= jobs, "%d jobs ended, want %d", d.ended(), jobs)
		})
	}
}

// TestLinesOnSeveralWorkersDoNotStall has workers take turns at few subjects, each with far more jobs than may wait: neither sees the
// end of the others' jobs but by looking, nor knows how many of them wait elsewhere. Jobs that are given back must not hold up the rest,
// with one worker either, nor may those behind a job that takes minutes.
func TestLinesOnSeveralWorkersDoNotStall(t *testing.T) {
	const jobs, takes = 240, 10 * time.Millisecond
	for _, tt := range []struct {
		workers, subjects, waiting int
		first                      time.Duration
	}{{1, 1, 4, takes}, {2, 1, 4, takes}, {3, 1, 10, takes}, {3, 4, 10, takes}, {3, 1, 1000, takes}, {2, 1, 4, 4 * time.Minute}} {
		if testing.Short() && tt.waiting != 10 {
			continue // as large a world again, and no other goroutines
		}
		runBubble(t, fmt.Sprintf("%+v", tt), func(t *testing.T, b *bundle) {
			for i := range jobs {
				b.publish(t, fmt.Sprintf("jobs.%d", i%tt.subjects), `{}`)
			}
			began, settled := time.Now(), make(chan worker.Outcome, jobs)
			for range tt.workers {
				cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.MaxWaiting = 4, tt.waiting })
				cfg.Hooks.Settled = func(s worker.Settlement) { settled <- s.Outcome }
				run(t, b.js, cfg, worker.Policy{Ordered: true}, func(_ context.Context, job *worker.Job[order]) error {
					if job.Sequence == 1 {
						natstest.Pass(tt.first)
					}
					natstest.Pass(takes)
					return nil
				})
			}
			back := 0
			for done := 0; done < jobs; {
				if <-settled == worker.OutcomeCompleted {
					done++
				} else {
					back++
				}
			}
			least := takes * jobs / time.Duration(tt.subjects)
			took := time.Since(began) - tt.first
			check.That(t, took <= 10*least+tt.first/2 && back <= 10*jobs+int(tt.first/(5*takes)), "took %v, at least %v; %d were given back", took, least, back)
		})
	}
}

// TestLineAfterLostHeartbeats loses the heartbeats of a worker while jobs of a subject wait there. It must not hand them back one by one.
func TestLineAfterLostHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		const jobs, ackWait = 30, 5 * time.Second
		waiting, done := make(chan bool, 10*jobs), make(chan uint64, jobs)
		run(t, js, b.config(t, func(c *worker.Config) {
			c.AckWait, c.Hooks.Waiting = ackWait, func(_ worker.Info, waits bool) { waiting <- waits }
		}), worker.Policy{Ordered: true}, func(ctx context.Context, job *worker.Job[order]) error {
			if job.Sequence == 1 && job.Deliveries == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			done <- job.Sequence
			return nil
		})
		for range jobs {
			b.publish(t, "jobs.a", `{}`)
		}
		for range jobs - 1 {
			<-waiting
		}
		p.Filter(natstest.Losing(isHeartbeat))
		natstest.Pass(2 * ackWait)
		p.Filter(nil)
		began := time.Now()
		for want := range uint64(jobs) {
			check.Equal(t, <-done, want+1, "the next job")
		}
		check.That(t, time.Since(began) <= 3*ackWait, "%d jobs took %v", jobs, time.Since(began))
	})
}

// TestOrderInARecreatedStream has a worker know up to where a stream was worked, and then another stream of that name.
func TestOrderInARecreatedStream(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg, done := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{Ordered: true}, func(_ context.Context, job *worker.Job[order]) error {
			natstest.Pass(time.Duration(job.Args.N) * time.Second)
			return nil
		})
		for _, n := range []string{`{"n":0}`, `{"n":0}`, `{"n":15}`} { // the last beyond a look at the consumer
			b.publish(t, "jobs.a", n)
			<-done
		}
		b.recreate(t)
		b.publish(t, "jobs.b", `{"n":0}`)
		wantOutcome(t, <-done, worker.OutcomeCompleted)
	})
}
