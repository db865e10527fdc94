package worker_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestWaitingForOneLimitHoldsNoOther has a job wait for a limit that another job has, while a
// third job needs only the limit that the first has not taken yet.
func TestWaitingForOneLimitHoldsNoOther(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	shared, busy := worker.Limit{Concurrency: 1, Name: "a-shared"}, worker.Limit{Concurrency: 1, Name: "b-busy"}
	hold, runs, waits := make(chan struct{}), make(chan string, 10), make(chan string, 10)

	w, err := worker.New(b.js, b.config(t, func(c *worker.Config) {
		c.Hooks.Waiting = func(info worker.Info, w bool) {
			if w {
				waits <- info.Subject
			}
		}
	}))
	check.OK(t, err)

	for subject, limits := range map[string][]worker.Limit{
		"jobs.busy": {busy}, "jobs.both": {shared, busy}, "jobs.shared": {shared},
	} {
		err := worker.Handle(w, subject, worker.Policy{Limits: limits}, func(_ context.Context, job *worker.Job[order]) error {
			runs <- job.Subject

			if job.Subject == "jobs.busy" {
				<-hold
			}
			return nil
		})
		check.OK(t, err)
	}

	start(t, w)

	expect := func(from chan string, want string) {
		t.Helper()

		check.Equal(t, receive(t, from, want), want, "result")
	}

	b.publish(t, "jobs.busy", `{}`)
	expect(runs, "jobs.busy")
	b.publish(t, "jobs.both", `{}`)
	expect(waits, "jobs.both")
	b.publish(t, "jobs.shared", `{}`)
	expect(runs, "jobs.shared")
	close(hold)
	expect(runs, "jobs.both")
}

// TestUnreadableLimitIsReported puts something else where a limit is counted. Jobs are put
// off, no attempt is used, and they run when it is gone.
func TestUnreadableLimitIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const record = "$KV.jobs.limits.keys.all.e3b0c44298fc1c149afbf4c8996fb924" // the hash of no key

		events := &strings.Builder{}
		cfg := b.config(t, func(c *worker.Config) { c.Logger = slog.New(slog.NewTextHandler(events, nil)) })
		r := run(t, b.js, cfg, oneAtATime, func(_ context.Context, job *worker.Job[order]) error {
			check.Equal(t, job.Attempt, 1, "attempt")
			return nil
		})

		natstest.Pass(time.Second) // the bucket is there

		check.OK(t, check.Err(b.js.Publish(t.Context(), record, []byte("no record"))))

		b.publish(t, "jobs.1", `{}`)

		s := <-b.settled
		check.That(t, s.Outcome == worker.OutcomeLimited && s.Err != nil && s.Delay > 0,
			"%s after %s: %v; want limited, with an error", s.Outcome, s.Delay, s.Err)

		bucket := check.Must(b.js.Stream(t.Context(), "KV_jobs"))(t)

		check.OK(t, bucket.Purge(t.Context(), jetstream.WithPurgeSubject(record)))

		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)

		check.ErrorIs(t, r.wait(), nil)

		check.That(t, strings.Contains(events.String(), worker.EventLimitUnreadable), "no event %s in\n%s", worker.EventLimitUnreadable, events)
	})
}

// TestRateIsKept counts the starts of jobs, or the turns of their handlers, in every window of Per, over two workers.
func TestRateIsKept(t *testing.T) {
	for _, l := range []worker.Limit{
		{Name: "slow", Per: time.Minute, Rate: 10},
		{Burst: 5, Name: "bursts", Per: time.Second, Rate: 3},
		{Burst: 3, Name: "fast", Per: time.Second, Rate: 100},
		{Burst: 4, Concurrency: 2, Name: "both", Per: time.Second, Rate: 10},
		{Burst: 2, Name: "turns", Per: time.Second, Rate: 2, Turns: true},
	} {
		runBubble(t, l.Name, func(t *testing.T, b *bundle) { rateIsKept(t, b, l) })
	}
}

func rateIsKept(t *testing.T, b *bundle, l worker.Limit) {
	t.Helper()

	const jobs = 60

	b.publishN(t, jobs)

	var mu sync.Mutex
	var starts []time.Time

	policy := worker.Policy{Limits: []worker.Limit{l}, MaxAttempts: 1}
	cfg := b.config(t, func(cfg *worker.Config) { cfg.MaxWaiting = jobs / 4 })

	for range 2 {
		_, js := natstest.Connect(t, b.srv)
		run(t, js, cfg, policy, func(ctx context.Context, job *worker.Job[order]) error {
			if l.Turns {
				check.OK(t, worker.Turn(ctx, l.Name))
			}
			mu.Lock()
			starts = append(starts, time.Now())
			mu.Unlock()

			check.Equal(t, job.Attempt, 1, "attempt")
			return nil
		})
	}

	b.drain(t)

	slices.SortFunc(starts, time.Time.Compare)

	most := 0

	for i, first := range starts {
		n := 0
		for n < len(starts)-i && starts[i+n].Sub(first) < l.Per {
			n++
		}

		most = max(most, n)
	}

	took := starts[len(starts)-1].Sub(starts[0])
	fewest := time.Duration(jobs-max(l.Burst, 1)) * l.Per / time.Duration(l.Rate)

	t.Logf("%d starts in %s (at the rate: %s), at most %d in %s", len(starts), took, fewest, most, l.Per)

	want := l.Rate + max(l.Burst, 1)
	check.That(t, most <= want, "%d starts in %s, want at most %d", most, l.Per, want)

	check.That(t, took >= fewest-time.Millisecond, "%d starts took %s, want at least %s", len(starts), took, fewest)

	check.That(t, took <= 2*fewest+5*time.Second, "%d starts took %s, want about %s", len(starts), took, fewest)
}

// TestRefusedEndOfALeaseCountsForNothing has a worker end the lease of one that seems to be
// gone, at the very moment at which that one renews it. The server refuses the end, and the
// permit stays where it is for another lease.
func TestRefusedEndOfALeaseCountsForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		nc, js := natstest.Connect(t, b.srv)
		started := make(chan struct{}, 1)
		first := run(t, js, b.config(t, stopAtOnce), oneAtATime, func(ctx context.Context, _ *worker.Job[order]) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})

		b.publish(t, "jobs.1", `{}`)
		receive(t, started, "the holder")

		p := natstest.NewProxy(t, b.srv)
		_, js = natstest.Connect(t, b.srv, p.Through())
		renewed, begun := make(chan time.Time, 1), make(chan time.Time, 2)
		tried := false

		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient && strings.Contains(f.Subject, ".limits.workers.") &&
				strings.Contains(string(f.Payload()), `"ended":true`) && !tried {
				tried = true

				renew(t, b.js, f.Subject)
				renewed <- time.Now()
			}
			return natstest.Relay
		})

		run(t, js, b.config(t), oneAtATime, sendEach(begun, timeNow))

		b.publish(t, "jobs.2", `{}`)
		natstest.Pass(time.Minute)
		nc.Close()

		check.That(t, first.wait() != nil, "the first worker ended without an error")

		at := receive(t, begun, "the next job")

		const lease = 5 * time.Second // AckWait

		since := at.Sub(receive(t, renewed, "the renewal"))
		check.That(t, since >= lease, "the next job began %s after the holder had renewed its lease of %s", since, lease)
	})
}

// renew writes the last record of a worker's lease again.
func renew(t *testing.T, js jetstream.JetStream, subject string) {
	t.Helper()

	s := check.Must(js.Stream(t.Context(), "KV_jobs"))(t)
	last := check.Must(s.GetLastMsgForSubject(t.Context(), subject))(t)

	check.ErrorIs(t, check.Err(js.Publish(t.Context(), subject, last.Data)), nil)
}
