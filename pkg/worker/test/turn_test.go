package test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestTurnsKeepTheRateOverAllWorkers has jobs that take several turns each, in two workers. The turns keep to the rate, and
// the jobs start without one.
func TestTurnsKeepTheRateOverAllWorkers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const (
			jobs, turnsOfJob = 8, 3
			gap, burst       = time.Second / 2, 2
		)

		b := setup(t, srv)
		b.publishN(t, jobs)

		var (
			mu    sync.Mutex
			turns []time.Time
		)

		began := time.Now()
		policy := worker.Policy{Limits: []worker.Limit{{Burst: burst, Name: "far", Per: gap, Rate: 1, Turns: true}}, MaxAttempts: 1}

		for range 2 {
			_, js := natstest.Connect(t, srv)
			run(t, js, b.config(t), policy, func(ctx context.Context, _ *worker.Job[order]) error {
				took := time.Since(began)
				check.That(t, took <= gap, "started after %s: it waited for a turn", took)

				for range turnsOfJob {
					if err := worker.Turn(ctx, "far"); err != nil {
						return err
					}

					mu.Lock()
					turns = append(turns, time.Now())
					mu.Unlock()
				}
				return nil
			})
		}

		for b.left(t) > 0 {
			pass(time.Second)
		}

		slices.SortFunc(turns, time.Time.Compare)

		check.Same(t, "turns", len(turns), jobs*turnsOfJob)

		for i, first := range turns {
			for n, last := range turns[i:] {
				allowed := burst + int(last.Sub(first)/gap) + 1
				check.Require(t, n < allowed, "%d turns in %s, want at most %d", n+1, last.Sub(first), allowed)
			}
		}

		took, atRate := turns[len(turns)-1].Sub(turns[0]), time.Duration(len(turns)-burst)*gap
		check.That(t, took <= atRate+5*time.Second, "the turns took %s, the rate allows %s", took, atRate)
	})
}

// TestTurnIsForTheJobsOfItsLimit: a turn is waited for by the jobs that the limit covers, under a name that the policy has.
func TestTurnIsForTheJobsOfItsLimit(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)

		for _, subject := range []string{"jobs.free", "jobs.far.1", "jobs.far.2"} {
			b.publish(t, subject, `{}`)
		}

		check.Is(t, worker.Turn(t.Context(), "far"), nil)

		began := time.Now()
		ended := make(chan string, 3)
		policy := worker.Policy{Limits: []worker.Limit{{
			Concurrency: 1, Name: "far", Per: time.Hour, Rate: 1, Subjects: "jobs.far.*", Turns: true,
		}}}

		run(t, b.js, b.config(t), policy, func(ctx context.Context, job *worker.Job[order]) error {
			check.Contains(t, worker.Turn(ctx, "near"), `no limit of that name`)

			wait, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()

			err := worker.Turn(wait, "far")
			switch late := job.Subject == "jobs.far.2"; {
			case late && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("%s: %v, want the end of its context", job.Subject, err)
			case !late && (err != nil || time.Since(began) > time.Second):
				t.Errorf("%s: %v after %s", job.Subject, err, time.Since(began))
			}

			ended <- job.Subject
			return nil
		})

		for range 3 {
			receive(t, ended, "the jobs")
		}
	})
}
