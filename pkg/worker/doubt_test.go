package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// isHeartbeat reports whether a message is a sign of life of a job.
func isHeartbeat(f natstest.Frame) bool { return f.FromClient && string(f.Payload()) == "+WPI" }

// reporting returns a configuration that reports the settlements of a worker's attempts, and the channel of them.
func (b *bundle) reporting(t *testing.T, mutate ...func(*worker.Config)) (worker.Config, <-chan worker.Settlement) {
	t.Helper()
	all := make(chan worker.Settlement, 100)
	cfg := b.config(t, mutate...)
	cfg.Hooks.Settled = func(s worker.Settlement) { all <- s }
	return cfg, all
}

// TestJobThatEndsElsewhereDuringItsReadsDoesNotStart gives a unique job to a second worker while the first one runs it, and lets the first
// complete it while the second waits for what is recorded of earlier attempts, and gets no answer.
func TestJobThatEndsElsewhereDuringItsReadsDoesNotStart(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		begun, release := make(chan int, 10), make(chan struct{})
		handle := func(_ context.Context, job *worker.Job[order]) error {
			begun <- job.Deliveries
			if job.Deliveries == 1 {
				<-release
			}
			return nil
		}
		p, js := natstest.Proxied(t, b.srv)
		p.Filter(natstest.Losing(isHeartbeat))
		cfg, first := b.reporting(t)
		run(t, js, cfg, worker.Policy{}, handle)
		insert(t, client(t, b.js), unique("jobs.1", 1, time.Hour))
		<-begun

		p, js = natstest.Proxied(t, b.srv)
		counts, asked := requests("$JS.API.STREAM.MSG.GET.KV_jobs"), false
		p.Filter(natstest.Losing(func(f natstest.Frame) bool {
			if asked || !f.FromClient || !counts(f) || !strings.Contains(string(f.Payload()), "excused") {
				return false
			}
			asked = true
			close(release)
			<-first
			return true
		}))
		cfg, second := b.reporting(t)
		run(t, js, cfg, worker.Policy{}, handle)
		wantOutcome(t, <-second, worker.OutcomeCompleted)
		check.Equal(t, len(begun), 0, "attempts of the second worker")
	})
}

// TestJobThatWaitedAndWasWorkedElsewhereDoesNotStart loses the heartbeats of a worker, for longer than AckWait, while a job
// waits there for a limit. Another worker completes the job in the meantime.
func TestJobThatWaitedAndWasWorkedElsewhereDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		begun, release := make(chan uint64, 10), make(chan struct{})
		waiting := make(chan bool, 10)
		cfg, here := b.reporting(t, func(c *worker.Config) {
			c.Concurrency, c.Hooks.Waiting = 2, func(_ worker.Info, waits bool) { waiting <- waits }
		})
		run(t, js, cfg, worker.Policy{Limits: []worker.Limit{{Name: "one", Concurrency: 1}}}, func(_ context.Context, job *worker.Job[order]) error {
			begun <- job.Sequence
			if job.Sequence == 1 {
				<-release
			}
			return nil
		})
		b.publish(t, "jobs.1", `{}`)
		<-begun
		b.publish(t, "jobs.2", `{}`)
		<-waiting
		p.Filter(natstest.Losing(isHeartbeat))

		cfg, elsewhere := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{MaxAttempts: 1000}, complete)
		<-elsewhere
		<-elsewhere
		p.Filter(nil)
		close(release)
		ends := map[uint64]worker.Outcome{}
		for range 2 {
			s := <-here
			ends[s.Sequence] = s.Outcome
		}
		check.Equal(t, ends, map[uint64]worker.Outcome{1: worker.OutcomeCompleted, 2: worker.OutcomeFenced})
		check.That(t, len(begun) == 0, "the job that waited started")
	})
}

// TestDeliveryThatCameLateDoesNotStart holds up a first delivery, as the socket of a process does that is stopped. The job is worked
// elsewhere in the meantime.
func TestDeliveryThatCameLateDoesNotStart(t *testing.T) {
	for name, tt := range map[string]struct{ ackWait, late time.Duration }{
		"within its request": {time.Second, 1500 * time.Millisecond},
		"after its request":  {5 * time.Second, 8 * time.Second},
	} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			p, js := natstest.Proxied(t, b.srv)
			ackWait := func(c *worker.Config) { c.AckWait = tt.ackWait }
			cfg, here := b.reporting(t, ackWait)
			run(t, js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
				t.Error("the job started in the worker that got it late")
				return nil
			})
			natstest.Pass(2 * time.Second) // it is in contact
			p.Slow(tt.late)
			b.publish(t, "jobs.1", `{}`)
			cfg, elsewhere := b.reporting(t, ackWait)
			run(t, b.js, cfg, worker.Policy{}, complete)
			check.Equal(t, wantOutcome(t, <-elsewhere, worker.OutcomeCompleted).Deliveries, 2, "delivery to the second worker")
			p.Slow(0)
			check.Equal(t, wantOutcome(t, <-here, worker.OutcomeFenced).Deliveries, 1, "delivery to the first worker")
		})
	}
}

// TestJobThatIsWorkedElsewhereDoesNotStart leaves a worker without heartbeats and answers while it counts the attempts of a job.
func TestJobThatIsWorkedElsewhereDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		ackWait := func(c *worker.Config) { c.AckWait, c.Concurrency, c.RequestTimeout = time.Second, 1, 2*time.Second }
		cfg, here := b.reporting(t, ackWait)
		counts := make(chan struct{}, 100)
		run(t, js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			check.That(t, job.Deliveries <= 1, "the job started although another worker has ended it")
			p.Filter(natstest.Losing(func(f natstest.Frame) bool {
				if f.FromClient && strings.Contains(f.Subject, ".KV_") {
					counts <- struct{}{}
					return true
				}
				return isHeartbeat(f)
			}))
			return worker.Retry(0, errors.New("again"))
		})
		b.publish(t, "jobs.1", `{}`)
		wantOutcome(t, <-here, worker.OutcomeRetried)
		<-counts
		cfg, elsewhere := b.reporting(t, ackWait)
		run(t, b.js, cfg, worker.Policy{}, complete)
		wantOutcome(t, <-elsewhere, worker.OutcomeCompleted)
		wantOutcome(t, <-here, worker.OutcomeFenced)
	})
}

// TestRecordedStepsDoNotRunAgain gives a job with steps to two workers at once. The job returns "a" and "b" to handlers; each must run
// once.
func TestRecordedStepsDoNotRunAgain(t *testing.T) {
	for name, lose := range map[string]func(natstest.Frame) bool{
		"heartbeats": isHeartbeat,
		"all":        func(natstest.Frame) bool { return true },
	} {
		runBubble(t, "by a worker that lost "+name, func(t *testing.T, b *bundle) {
			p, js := natstest.Proxied(t, b.srv)
			reached, release, ran := make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
			work := func(wait bool) worker.Handler[order] {
				return func(ctx context.Context, job *worker.Job[order]) error {
					first := step.Do(ctx, job, "a", func(context.Context) error { ran <- "a"; return nil })
					if wait {
						reached <- struct{}{}
						<-release
					}
					return errors.Join(first, step.Do(ctx, job, "b", func(context.Context) error { ran <- "b"; return nil }))
				}
			}
			cfg, here := b.reporting(t)
			run(t, js, cfg, worker.Policy{}, work(true))
			b.publish(t, "jobs.1", `{}`)
			<-reached
			p.Filter(natstest.Losing(lose))
			cfg, elsewhere := b.reporting(t)
			run(t, b.js, cfg, worker.Policy{MaxAttempts: 1000}, work(false))
			wantOutcome(t, <-elsewhere, worker.OutcomeCompleted)
			p.Filter(nil)
			close(release)
			wantOutcome(t, <-here, worker.OutcomeFenced)
			check.Equal(t, len(ran), 2, "steps that ran")
		})
	}
}

// TestLineWithLateConfirmations has each heartbeat confirmed after the next two have been sent. No job of a line may be left to another
// worker for that.
func TestLineWithLateConfirmations(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		const jobs, ackWait = 5, 5 * time.Second
		awaited := map[string]bool{}
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			switch {
			case isHeartbeat(f) && f.Reply != "":
				awaited[f.Reply] = true
			case !f.FromClient && awaited[f.Subject]:
				delete(awaited, f.Subject)
				time.AfterFunc(2*ackWait/5, func() { _ = b.nc.Publish(f.Subject, nil) }) // it is connected
				return natstest.Lose
			}
			return natstest.Relay
		})
		cfg, done := b.reporting(t, func(c *worker.Config) { c.AckWait = ackWait })
		run(t, js, cfg, worker.Policy{Ordered: true}, func(ctx context.Context, _ *worker.Job[order]) error {
			select {
			case <-time.After(3 * ackWait):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		})
		for range jobs {
			b.publish(t, "jobs.a", `{}`)
		}
		for range jobs {
			check.Equal(t, wantOutcome(t, <-done, worker.OutcomeCompleted).Deliveries, 1, "delivery")
		}
	})
}
