package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestProgressIsReadAndHeard(t *testing.T) {
	check.ErrorIs(t, new(worker.Job[order]).Progress(t.Context(), 1), nil, "outside a worker")
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		heard := make(chan *nats.Msg, 10)

		check.OK(t, check.Err(b.nc.ChanSubscribe(worker.ProgressSubject("jobs", stream, 1), heard)))

		next := make(chan struct{})
		run(t, b.js, b.config(t), worker.Policy{Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
			<-next

			check.ErrorIs(t, job.Progress(ctx, map[string]int{"done": job.Attempt * 10}), nil)

			check.That(t, job.Progress(ctx, strings.Repeat("x", 65<<10)) != nil, "progress of 65 KiB was accepted")

			<-next

			if job.Attempt == 1 {
				return worker.Retry(time.Minute, errors.New("again"))
			}
			return nil
		})

		progress := func(state worker.State, attempt int, value string) {
			t.Helper()

			j := jobOf(t, c, mailRef)
			p := j.Progress
			check.Require(t, p != nil, "%+v has no progress", j)
			check.That(t, p.State == state && p.Attempt == attempt && string(p.Value) == value && p.Worker == t.Name(),
				"%+v; want %s, attempt %d, %s", p, state, attempt, value)
		}

		r := insert(t, c, mail(worker.Unique{}))

		natstest.Pass(time.Second)

		j := jobOf(t, c, mailRef)
		check.That(t, j.State == worker.StateDelivered && j.Progress == nil, "%+v; want delivered, without progress", j)

		natstest.Pass(3 * time.Second)
		progress(worker.StateRunning, 1, "null")
		check.Equal(t, jobOf(t, c, mailRef).State, worker.StateRunning)

		next <- struct{}{}

		natstest.Pass(time.Second)
		progress(worker.StateRunning, 1, `{"done":10}`)

		next <- struct{}{}
		<-b.settled
		progress(worker.StateQueued, 1, "null")
		check.Equal(t, jobOf(t, c, mailRef).State, worker.StateRetrying)

		next <- struct{}{}
		next <- struct{}{}
		<-b.settled

		check.Equal(t, jobOf(t, c, mailRef).State, free)

		for _, want := range []string{"null", `{"done":10}`, "null", `{"done":20}`} {
			var p worker.Progress
			if msg := <-heard; json.Unmarshal(msg.Data, &p) != nil || string(p.Value) != want || p.ID != r.ID {
				t.Errorf("heard %s, want %s of %s", msg.Data, want, r.ID)
			}
		}
	})
}

// TestJobRunsWhereProgressCannotBeWritten loses everything about progress, as a server does
// that denies it.
func TestJobRunsWhereProgressCannotBeWritten(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)

		var log events

		tries := 0

		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient && strings.Contains(f.Subject, ".progress.") {
				tries++
				return natstest.Lose
			}
			return natstest.Relay
		})

		cfg := b.config(t, func(c *worker.Config) { c.Logger = log.logger() })
		run(t, js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
			natstest.Pass(time.Minute)
			return nil
		})

		for range 3 {
			b.publish(t, "jobs.a", `{}`)

			check.Equal(t, wantOutcome(t, <-b.settled, worker.OutcomeCompleted).Deliveries, 1, "delivery")
		}

		check.That(t, tries == 1 && log.count(worker.EventProgressFailed) == 1,
			"tried %d times, reported %d; want 1, 1", tries, log.count(worker.EventProgressFailed))
	})
}
