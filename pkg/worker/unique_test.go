package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// mail is a unique job.
func mail(unique worker.Unique) worker.NewJob {
	unique.Key = "u17"
	return worker.NewJob{Args: order{N: 1}, Subject: "jobs.mail", Unique: &unique}
}

// TestUniqueJobInEveryState inserts a job beside one of its key in each state.
func TestUniqueJobInEveryState(t *testing.T) {
	t.Parallel()

	fail := func(context.Context, *worker.Job[order]) error { return worker.Cancel(errors.New("no")) }

	for name, test := range map[string]struct {
		first     worker.NewJob
		handler   worker.Handler[order] // nil: none
		outcome   worker.Outcome
		state     worker.State
		duplicate bool
		second    worker.NewJob
	}{
		"scheduled":             {first: later(mail(worker.Unique{})), state: worker.StateScheduled, duplicate: true, second: mail(worker.Unique{})},
		"queued":                {first: mail(worker.Unique{}), state: worker.StateQueued, duplicate: true, second: later(mail(worker.Unique{}))},
		"done":                  {mail(worker.Unique{}), complete, worker.OutcomeCompleted, free, false, mail(worker.Unique{})},
		"done, kept":            {mail(worker.Unique{Keep: time.Hour}), complete, worker.OutcomeCompleted, worker.StateDone, true, mail(worker.Unique{})},
		"dead":                  {mail(worker.Unique{}), fail, worker.OutcomeDead, worker.StateDead, false, mail(worker.Unique{})},
		"dead, kept":            {mail(worker.Unique{Keep: time.Hour}), fail, worker.OutcomeDead, worker.StateDead, false, later(mail(worker.Unique{}))},
		"dead, hold":            {mail(worker.Unique{}), fail, worker.OutcomeDead, worker.StateDead, true, mail(worker.Unique{HoldDead: true})},
		"another's, by its key": {first: worker.NewJob{Args: 1, Subject: "jobs.mail.u17"}, state: worker.StateQueued, duplicate: true, second: mail(worker.Unique{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := keyed(t, nil)
			c := client(t, b.js)
			first := insert(t, c, test.first)

			if test.handler != nil {
				r := run(t, b.js, b.config(t), worker.Policy{}, test.handler)

				check.Same(t, "first job", receive(t, b.settled, "the job").Outcome, test.outcome)

				check.Is(t, r.wait(), nil)
			}

			s := jobOf(t, c, mailRef)
			check.That(t, s.State == test.state && (s.State == free || s.ID == first.ID),
				"%+v; want %s, job %s", s, test.state, first.ID)

			second := insert(t, c, test.second)
			check.That(t, second.Duplicate == test.duplicate && (!second.Duplicate || second.ID == first.ID && second.State == test.state),
				"second: %+v, want duplicate %t of %+v in state %s", second, test.duplicate, first, test.state)

			check.Same(t, "messages of the key", b.left(t), 1)
		})
	}
}

func later(job worker.NewJob) worker.NewJob {
	job.Delay = time.Hour
	return job
}

// contested is how many jobs race has every client insert.
const contested = 50

// race has rival clients insert jobs at the same time, each its own job of every key, and checks that one job of a key is accepted.
func race(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream), job func(rival, key int) worker.NewJob) [rivals][]worker.Receipt {
	t.Helper()

	var (
		group    sync.WaitGroup
		receipts [rivals][]worker.Receipt
	)

	for r := range rivals {
		_, js := connect()
		c := client(t, js)

		group.Go(func() {
			jobs := make([]worker.NewJob, contested)
			for k := range jobs {
				jobs[k] = job(r, k)
			}

			var err error
			if receipts[r], err = insertAll(t.Context(), c, jobs); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()

	for k := range contested {
		accepted := 0

		for r := range rivals {
			if !receipts[r][k].Duplicate {
				accepted++
			}
		}

		check.Same(t, fmt.Sprintf("key %d: inserts accepted", k), accepted, 1)
	}

	_, js := connect()
	check.Same(t, "messages stored", stored(t, js), contested)
	return receipts
}

func TestOneOfManyInsertsIsAccepted(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		receipts := race(t, connect, func(rival, key int) worker.NewJob {
			return worker.NewJob{Args: order{N: rival}, Subject: "jobs.k", Unique: &worker.Unique{Key: fmt.Sprint(key), Keep: time.Hour}}
		})

		for r := range rivals {
			for k, got := range receipts[r] {
				check.That(t, got.ID == receipts[0][k].ID && got.Sequence == receipts[0][k].Sequence && got.State == worker.StateQueued,
					"key %d: receipts %+v and %+v differ", k, got, receipts[0][k])
			}
		}
	})
}

func TestSameIDIsStoredOnce(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)

	for i, job := range []worker.NewJob{
		{Args: 1, Subject: "jobs.a", ID: "i 1"},
		{Args: 2, Subject: "jobs.b", ID: "i 1"},
	} {
		r := insert(t, c, job)
		check.That(t, r.Duplicate == (i > 0) && r.ID == "i 1", "insert %d: %+v", i, r)
	}

	// A unique job is told apart by its key alone, whatever its ID: the ID of one that has
	// gone must not be in the way.
	unique := mail(worker.Unique{})
	unique.ID = "i 1"

	r := insert(t, c, unique)
	check.That(t, !r.Duplicate, "unique: %+v", r)

	r = insert(t, c, unique)
	check.That(t, r.Duplicate && r.State == worker.StateQueued, "unique, again: %+v", r)

	check.Same(t, "messages", b.left(t), 2)
}
