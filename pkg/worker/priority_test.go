package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// classNames are the subjects of the tests' priorities, below "jobs.".
var classNames = map[worker.Priority]string{
	worker.PriorityHigh: "high", worker.PriorityNormal: "normal", worker.PriorityLow: "low",
}

// runClasses starts a worker with a handler for each of some priorities.
func runClasses(t testing.TB, js jetstream.JetStream, cfg worker.Config, h func(ctx context.Context, class string, job *worker.Job[order]) error, classes ...worker.Priority) *running {
	t.Helper()

	w := check.Must(worker.New(js, cfg))(t)

	for _, p := range classes {
		name := classNames[p]

		err := worker.Handle(w, "jobs."+name+".>", worker.Policy{Priority: p, MaxAttempts: 2}, func(ctx context.Context, job *worker.Job[order]) error {
			return h(ctx, name, job)
		})
		check.OK(t, err)
	}
	return start(t, w)
}

var threeClasses = []worker.Priority{worker.PriorityLow, worker.PriorityHigh, worker.PriorityNormal}

// publishClass adds n jobs of a priority.
func (b *bundle) publishClass(t testing.TB, class string, n int) {
	t.Helper()

	for i := range n {
		b.queue(t, fmt.Sprintf("jobs.%s.%d", class, i), fmt.Appendf(nil, `{"n":%d}`, i))
	}

	receive(t, b.js.PublishAsyncComplete(), "jobs to be published")
}

// TestPrioritiesShareTheSlots counts the starts while jobs of every priority wait: each
// gets four times the starts of the next, whatever the number of slots. A job takes a
// moment, in which the worker fetches the next ones: one that has none of a priority at
// hand lets others start.
func TestPrioritiesShareTheSlots(t *testing.T) {
	for name, classes := range map[string][]worker.Priority{
		"two": {worker.PriorityNormal, worker.PriorityHigh}, "three": threeClasses,
		"two steps apart": {worker.PriorityLow, worker.PriorityHigh},
	} {
		for _, slots := range []int{1, 3, 20} {
			natstest.RunBubble(t, fmt.Sprintf("%s, %d slots", name, slots), func(t *testing.T, srv *natsrun.Server) { shareTheSlots(t, srv, classes, slots) })
		}
	}
}

func shareTheSlots(t *testing.T, srv *natsrun.Server, classes []worker.Priority, slots int) {
	t.Helper()

	const rounds = 20 // of as many starts as the weights add up to

	weights, sum, lowest := map[string]int{}, 0, slices.Min(classes)
	for _, p := range classes {
		weights[classNames[p]] = 1 << (2 * (p - lowest))
		sum += weights[classNames[p]]
	}

	b := setup(t, srv)
	for class, weight := range weights {
		b.publishClass(t, class, weight*rounds+2*slots*weight)
	}

	var (
		mu     sync.Mutex
		starts = map[string]int{}
		total  int
	)

	enough := make(chan struct{})
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.SoftStop = slots, -1 })
	runClasses(t, b.js, cfg, func(ctx context.Context, class string, _ *worker.Job[order]) error {
		mu.Lock()

		full := total == rounds*sum
		if !full {
			starts[class]++
			total++
		}

		if total == rounds*sum && !full {
			close(enough)
		}

		mu.Unlock()

		if full {
			<-ctx.Done()
		}

		natstest.Pass(time.Millisecond)
		return nil
	}, classes...)
	receive(t, enough, "starts")

	mu.Lock()
	defer mu.Unlock()

	for class, weight := range weights {
		// At most the slots that are taken at once can be out of turn.
		off := starts[class] - weight*rounds
		check.That(t, off <= slots+1 && off >= -slots-1, "%d starts of %s, want %d", starts[class], class, weight*rounds)
	}
}

// stepwise returns work that sends the class of its job to started, and ends when it receives from leave, or with its
// context.
func stepwise(started chan<- string, leave <-chan struct{}) func(context.Context, string, *worker.Job[order]) error {
	return func(ctx context.Context, class string, _ *worker.Job[order]) error {
		select {
		case started <- class:
		case <-ctx.Done():
			return ctx.Err()
		}

		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestPriorityThatWasAloneHasNoDebt works 100 low jobs while there are no others. It is as
// if they had not been when high ones come, and the other way round.
func TestPriorityThatWasAloneHasNoDebt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const each = 100

		started, leave := make(chan string), make(chan struct{})
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.SoftStop = 1, -1 })
		r := runClasses(t, b.js, cfg, stepwise(started, leave), worker.PriorityHigh, worker.PriorityNormal)

		for _, alone := range []string{"normal", "high"} {
			b.publishClass(t, alone, each)

			for i := range each {
				<-started

				if i == each-1 { // both wait for the slot
					b.publishClass(t, "normal", each)
					b.publishClass(t, "high", each)
					natstest.Pass(10 * time.Millisecond) // one that was seen to be empty is looked at again
				}

				leave <- struct{}{}
			}

			var starts [2]int

			for i := range 2 * each {
				class := <-started
				if i < each && class == "high" {
					starts[0]++
				} else if i < each {
					starts[1]++
				}

				leave <- struct{}{}
			}

			check.That(t, starts[0] >= 4*each/5-2 && starts[0] <= 4*each/5+2,
				"after %d %s jobs alone: %d high ones in the next %d starts, want %d", each, alone, starts[0], each, 4*each/5)
		}

		r.stop()
	})
}

// TestLowPriorityIsNotStarved has jobs of the highest priority that never end: each
// publishes the next ones.
func TestLowPriorityIsNotStarved(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const low = 20

		// More high jobs than start before the last low one: they do not run out, however slowly new ones come.
		b.publishClass(t, "high", 16*low+200)
		b.publishClass(t, "low", low)

		var highs, lows atomic.Int32

		done := make(chan int32, 1)
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 3 })
		runClasses(t, b.js, cfg, func(ctx context.Context, class string, _ *worker.Job[order]) error {
			natstest.Pass(time.Millisecond) // in which the next ones are fetched

			if class == "low" {
				if lows.Add(1) == low {
					done <- highs.Load()
				}
				return nil
			}

			if n := highs.Add(1); lows.Load() < low && n < 100*low {
				_, err := b.js.Publish(ctx, "jobs.high.next", []byte(`{}`))
				return err
			}
			return nil
		}, threeClasses...)

		// 16 of 17 starts are high ones, and no job of the middle priority is there.
		if n := receive(t, done, "the last low job"); n > 16*low+100 || n < 16*(low-2)-100 {
			t.Errorf("%d high jobs started before the last of %d low ones, want about %d", n, low, 16*low)
		}
	})
}

// TestOnePriorityMayUseEverySlot holds the jobs of one priority until all slots are taken,
// while the other priorities have none, and then again for another.
func TestOnePriorityMayUseEverySlot(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const slots = 8

		arrived, leave := make(chan string, 10*slots), make(chan struct{})

		var now, most atomic.Int32

		cfg := b.config(t, func(c *worker.Config) { c.Concurrency = slots })
		runClasses(t, b.js, cfg, func(_ context.Context, class string, _ *worker.Job[order]) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)

			arrived <- class

			<-leave
			return nil
		}, threeClasses...)

		for _, class := range []string{"low", "high", "normal"} {
			b.publishClass(t, class, slots+2)

			for range slots {
				check.Equal(t, receive(t, arrived, "a job in every slot"), class, "a job")
			}

			for range slots + 2 {
				leave <- struct{}{}
			}

			for range 2 {
				receive(t, arrived, "the rest")
			}
		}

		check.Equal(t, most.Load(), slots, "jobs at once")
	})
}

// TestNextSlotGoesToTheHighPriority has 1,000 low jobs waiting for the one slot when a
// high one comes: just after the running job started, or much later.
func TestNextSlotGoesToTheHighPriority(t *testing.T) {
	for _, after := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Second, time.Minute} {
		natstest.RunBubble(t, after.String(), func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv)
			b.publishClass(t, "low", 1000)

			started, leave := make(chan string), make(chan struct{})
			cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 })
			r := runClasses(t, b.js, cfg, stepwise(started, leave), threeClasses...)

			for range 5 {
				check.Equal(t, <-started, "low", "result")

				natstest.Pass(after)
				b.publishClass(t, "high", 1)
				natstest.Pass(after)

				freed := time.Now()
				leave <- struct{}{}

				check.Equal(t, <-started, "high", "started next")

				waited := time.Since(freed)
				check.That(t, waited <= 10*time.Millisecond, "after %s, want at once", waited)

				leave <- struct{}{}
			}

			r.stop()
		})
	}
}
