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
			runBubble(t, fmt.Sprintf("%s, %d slots", name, slots), func(t *testing.T, b *bundle) { shareTheSlots(t, b, classes, slots) })
		}
	}
}

func shareTheSlots(t *testing.T, b *bundle, classes []worker.Priority, slots int) {
	t.Helper()

	const rounds = 20 // of as many starts as the weights add up to

	weights, sum, lowest := map[string]int{}, 0, slices.Min(classes)
	for _, p := range classes {
		weights[classNames[p]] = 1 << (2 * (p - lowest))
		sum += weights[classNames[p]]
	}

	for class, weight := range weights {
		b.publishClass(t, class, weight*rounds+2*slots*weight)
	}

	var mu sync.Mutex

	starts, total, enough := map[string]int{}, 0, make(chan struct{})
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
		runBubble(t, after.String(), func(t *testing.T, b *bundle) {
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

				within(t, "the start of the high job", time.Since(freed), 0, 10*time.Millisecond)

				leave <- struct{}{}
			}

			r.stop()
		})
	}
}
