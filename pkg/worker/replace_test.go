package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// put replaces or inserts the job of the one key.
func replace(t testing.TB, c *worker.Client, n int, delay, keep time.Duration) worker.Receipt {
	t.Helper()

	r, err := c.Replace(t.Context(), worker.NewJob{
		Args: order{N: n}, Delay: delay, Subject: "jobs.mail", Unique: &worker.Unique{Key: "u17", Keep: keep},
	})
	check.OK(t, err)
	return r
}

func TestReplaceTakesThePlaceOfWhatHasNotStarted(t *testing.T) {
	for name, test := range map[string]struct{ first, second time.Duration }{
		"queued by queued":       {},
		"queued by scheduled":    {second: time.Minute},
		"scheduled by queued":    {first: time.Minute},
		"scheduled by later":     {first: time.Minute, second: 2 * time.Minute},
		"scheduled by sooner":    {first: 2 * time.Minute, second: time.Minute},
		"scheduled, firing":      {first: 200 * time.Millisecond, second: time.Minute},
		"scheduled, firing, now": {first: 250 * time.Millisecond},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)

			if r := replace(t, c, 1, test.first, 0); r.Duplicate || r.Replaced {
				t.Errorf("first: %+v", r)
			}

			r := replace(t, c, 2, test.second, 0)
			check.That(t, !r.Duplicate && r.Replaced, "second: %+v", r)

			if s := jobOf(t, c, mailRef); s.ID != r.ID || s.State != r.State || b.left(t) != 1 {
				t.Errorf("%+v, %d messages; want job %s alone", s, b.left(t), r.ID)
			}
			b.runsSecond(t)
		})
	}
}

// runsSecond checks that of the jobs that were inserted the second one runs, alone.
func (b *bundle) runsSecond(t *testing.T) {
	t.Helper()
	var ran []int
	run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		ran = append(ran, job.Args.N)
		return nil
	})
	pass(3 * time.Minute)
	synctest.Wait()
	if len(ran) != 1 || ran[0] != 2 || b.left(t) != 0 {
		t.Errorf("%v ran, %d left; want 2 alone, 0", ran, b.left(t))
	}
}

func TestRunningJobIsNotReplaced(t *testing.T) {
	for name, keep := range map[string]time.Duration{"not kept": 0, "kept": 10 * time.Minute} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)
			started, wake := make(chan int), make(chan error)
			run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
				started <- job.Args.N
				return <-wake
			})

			first := replace(t, c, 1, 0, keep)
			<-started

			if r := replace(t, c, 2, time.Hour, keep); !r.Duplicate || r.State != worker.StateRunning || r.ID != first.ID {
				t.Errorf("while it runs: %+v, want a duplicate of %s, running", r, first.ID)
			}

			wake <- worker.Retry(time.Minute, errors.New("again"))

			pass(time.Second)

			if r := replace(t, c, 3, 0, keep); !r.Replaced {
				t.Errorf("while it waits for its next attempt: %+v, want it replaced", r)
			}

			check.Same(t, "job started", <-started, 3)

			wake <- nil

			pass(2 * time.Minute)

			r := replace(t, c, 4, 0, keep)
			check.That(t, r.Duplicate == (keep > 0) && (!r.Duplicate || r.State == worker.StateDone), "when it is done: %+v", r)

			if !r.Duplicate {
				<-started
				wake <- nil
			}

			pass(10 * time.Minute)

			check.Same(t, "messages left", b.left(t), 0)
		})
	}
}

// TestWorkerKilledAroundTheMark kills the worker of a replaceable job at each of its writes.
func TestWorkerKilledAroundTheMark(t *testing.T) {
	for name, test := range map[string]struct {
		moment func(natstest.Frame) bool
		before worker.State
		runs   int32
	}{
		"before the mark": {beforeRecord, worker.StateDelivered, 1},
		"in the job":      {isHeartbeat, worker.StateDelivered, 2},
		"before the mark is removed": {
			func() func(natstest.Frame) bool {
				n := 0
				return func(f natstest.Frame) bool {
					if beforeRecord(f) {
						n++
					}
					return n == 2
				}
			}(), worker.StateRunning, 2,
		},
		"before the ack": {beforeAck, worker.StateFree, 1},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)

			var runs atomic.Int32

			slow := func(context.Context, *worker.Job[order]) error {
				runs.Add(1)
				pass(4 * time.Second)
				return nil
			}

			var r worker.Receipt

			_ = b.killWorker(t, test.moment, slow, func() { r = replace(t, c, 1, 0, 0) }) // closed, or a stuck handler

			if s := jobOf(t, c, mailRef); s.State != test.before || s.ID != r.ID && s.State != worker.StateFree {
				t.Errorf("after the kill: %+v; want %s", s, test.before)
			}

			cfg, outcomes := b.reporting(t)
			run(t, b.js, cfg, worker.Policy{}, slow)

			if s := <-outcomes; s.Outcome != worker.OutcomeCompleted || runs.Load() != test.runs {
				t.Errorf("second worker: %s, %d runs; want completed, %d", s.Outcome, runs.Load(), test.runs)
			}

			s := jobOf(t, c, mailRef)
			check.That(t, s.State == worker.StateFree, "in the end: %+v; want free", s)

			if r := replace(t, c, 2, 0, 0); r.Duplicate || r.Replaced {
				t.Errorf("the next: %+v", r)
			}

			<-outcomes
			pass(2 * time.Minute)

			check.Same(t, "messages left", b.left(t), 0)
		})
	}
}

// TestReplacementsAndStartsExclude lets replacements race with a worker that starts the
// replaced jobs. A job that Replace reported as replaced never runs.
func TestReplacementsAndStartsExclude(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		const n = 150

		_, js := connect()
		b := &bundle{js: js}

		var (
			mu   sync.Mutex
			runs = make(map[string]int)
		)

		run(t, js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			mu.Lock()
			defer mu.Unlock()

			runs[job.ID]++
			return nil
		})

		var group sync.WaitGroup

		accepted := make(chan worker.Receipt, 3*n)

		for range 3 {
			_, js := connect()
			c := client(t, js)

			group.Go(func() {
				for i := range n {
					r := replace(t, c, i, 0, 0)
					if !r.Duplicate {
						accepted <- r
					}
				}
			})
		}

		group.Wait()
		close(accepted)

		var inserted, replaced int

		for r := range accepted {
			inserted++

			if r.Replaced {
				replaced++
			}
		}

		// Every replacement takes exactly one job away.
		until(t, "the jobs to run", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(runs) == inserted-replaced
		})
		until(t, "the key to be free", func() bool { return b.queued(t) == 0 })

		mu.Lock()
		defer mu.Unlock()

		for id, times := range runs {
			check.Same(t, fmt.Sprintf("job %s runs", id), times, 1)
		}

		check.That(t, len(runs) == inserted-replaced, "%d jobs ran, want %d accepted less %d replaced", len(runs), inserted, replaced)

		t.Logf("%d accepted, %d of them replacements", inserted, replaced)
	})
}

func TestReplaceWhoseMessagesAreLost(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second, time.Minute} {
		for _, first := range []time.Duration{0, 1500 * time.Millisecond, 2 * time.Minute} {
			for _, answer := range []bool{false, true} {
				natstest.RunBubble(t, delay.String()+" over "+first.String(), func(t *testing.T, srv *natsrun.Server) {
					b := keyed(t, srv)
					p, js := natstest.Proxied(t, srv)

					replace(t, client(t, b.js), 1, first, 0)

					tries := 0 // the first is refused, the second replaces

					second := func(f natstest.Frame) bool {
						if isInsert(f) {
							tries++
						}
						return isInsert(f) && tries == 2
					}
					if answer {
						loseAnswer(p, second)
					} else {
						p.Filter(natstest.Losing(func(f natstest.Frame) bool { return second(f) }))
					}

					r := replace(t, client(t, js), 2, delay, 0)
					check.That(t, r.Replaced, "%+v, want it replaced", r)
					b.runsSecond(t)
				})
			}
		}
	}
}

func TestMarkWithoutAJobHoldsNothing(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		started, wake := make(chan int), make(chan error)
		run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			started <- job.Args.N
			return <-wake
		})

		first := replace(t, c, 1, 0, 0)
		<-started

		s := check.Must(b.js.Stream(t.Context(), stream))(t)

		check.OK(t, s.DeleteMsg(t.Context(), first.Sequence))

		r := insert(t, c, mail(worker.Unique{}))
		check.That(t, !r.Duplicate, "%+v, want it accepted: the job was deleted by hand", r)

		<-started
		wake <- nil
		wake <- nil
	})
}

func TestOnlyAUniqueJobReplaces(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)

	check.Failsf(t, check.Err(c.Replace(t.Context(), worker.NewJob{Subject: "jobs.a"})), "a job that is not unique was accepted")

	first := insert(t, c, mail(worker.Unique{}))
	r := replace(t, c, 2, 0, 0)
	check.That(t, r.Duplicate && r.ID == first.ID && r.State == worker.StateQueued, "%+v, want a duplicate: Insert inserted the first", r)
}
