package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// client returns a client of the job stream.
func client(t testing.TB, js jetstream.JetStream, mutate ...func(*worker.ClientConfig)) *worker.Client {
	t.Helper()

	cfg := worker.ClientConfig{Stream: stream}
	for _, m := range mutate {
		m(&cfg)
	}
	return check.Must(worker.NewClient(js, cfg))(t)
}

// insert inserts a job that must be accepted or refused without an error.
func insert(t testing.TB, c *worker.Client, job worker.NewJob) worker.Receipt {
	t.Helper()
	return check.Must(c.Insert(t.Context(), job))(t)
}

const free = worker.State("free") // of jobOf: there is no job

var mailRef = worker.JobByKey("jobs.mail", "u17") // of mail

// jobOf returns a job, or one that is free.
func jobOf(t testing.TB, c *worker.Client, ref worker.JobRef) worker.StoredJob {
	t.Helper()

	j, err := c.Job(t.Context(), ref)
	if errors.Is(err, worker.ErrNoJob) {
		return worker.StoredJob{State: free}
	}
	check.OK(t, err)
	return j
}

// insertAll inserts jobs at the same time, 256 of them at most, and returns their receipts in the order of the jobs.
func insertAll(ctx context.Context, c *worker.Client, jobs []worker.NewJob) ([]worker.Receipt, error) {
	var group sync.WaitGroup

	receipts, errs, free := make([]worker.Receipt, len(jobs)), make([]error, len(jobs)), make(chan struct{}, 256)
	for i, job := range jobs {
		free <- struct{}{}

		group.Go(func() {
			receipts[i], errs[i] = c.Insert(ctx, job)
			<-free
		})
	}

	group.Wait()

	return receipts, errors.Join(errs...)
}

func complete(context.Context, *worker.Job[order]) error { return nil }

func TestInsertedJobRunsWithItsIDAndArguments(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)
	jobs := make(chan *worker.Job[order], 3)
	run(t, b.js, b.config(t), worker.Policy{}, sendEach(jobs, wholeJob))

	for _, job := range []worker.NewJob{
		{Args: order{N: 1}, Subject: "jobs.a", Header: nats.Header{"Tenant": {"t1"}}},
		{Args: order{N: 2}, Subject: "jobs.b", ID: "mine/ 2"},
		{Args: order{N: 3}, Subject: "jobs.c", ID: "mine", Unique: &worker.Unique{Key: "a b.c", Keep: time.Hour}},
	} {
		r := insert(t, c, job)
		got := receive(t, jobs, "the job")

		if got.ID != r.ID || got.Args != job.Args || got.Subject != r.Subject || got.Sequence != r.Sequence || r.Duplicate || r.State != worker.StateQueued {
			t.Errorf("%+v\nran as %+v\nwith receipt %+v", job, got, r)
		}

		check.That(t, (job.ID == "" || r.ID == job.ID) && r.ID != "", "ID %q, want %q", r.ID, job.ID)

		check.Equal(t, got.Header.Get("Tenant"), job.Header.Get("Tenant"))
	}
}

func TestInsertRefusesWhatIsInvalidAtOnce(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)
	now := time.Now()

	for name, test := range map[string]struct {
		job  worker.NewJob
		want string
	}{
		"no subject":       {worker.NewJob{}, "NewJob.Subject"},
		"wildcard":         {worker.NewJob{Subject: "jobs.*"}, "NewJob.Subject"},
		"one token":        {worker.NewJob{Subject: "jobs"}, "two tokens"},
		"later":            {worker.NewJob{Subject: "jobs-later.a"}, "not for jobs"},
		"done":             {worker.NewJob{Subject: "jobs-done.a"}, "not for jobs"},
		"long subject":     {worker.NewJob{Subject: "jobs." + strings.Repeat("x", 1024)}, "1024 bytes"},
		"long key":         {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Key: strings.Repeat("x", 321)}}, "too long"},
		"long ID":          {worker.NewJob{Subject: "jobs.a", ID: strings.Repeat("x", 321)}, "NewJob.ID"},
		"ID of two lines":  {worker.NewJob{Subject: "jobs.a", ID: "a\r\nNats-Rollup: all"}, "NewJob.ID"},
		"own header":       {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"job-keep": {"1h"}}}, "NewJob.Header"},
		"server's header":  {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"Nats-Rollup": {"all"}}}, "NewJob.Header"},
		"header of lines":  {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A": {"x\r\nNats-Rollup: all"}}}, "NewJob.Header"},
		"header of name":   {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A: b\nc": {"x"}}}, "NewJob.Header"},
		"nats.go's header": {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"trace/id": {"x"}}}, `header "trace/id"`},
		"header not ASCII": {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"é": {"x"}}}, `header "é"`},
		"bytes in header":  {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A": {"\xff"}}}, `header "A"`},
		"padded header":    {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A": {" x"}}}, `header "A"`},
		"many headers":     {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A": make([]string, 4<<10)}}, "NewJob.Header"},
		"bytes in subject": {worker.NewJob{Subject: "jobs.\xff"}, "UTF-8"},
		"bytes in ID":      {worker.NewJob{Subject: "jobs.a", ID: "\xff"}, "NewJob.ID"},
		"large with names": {worker.NewJob{
			Subject: "jobs.a", Args: make([]byte, 1<<20-2<<10), Header: nats.Header{"A": {strings.Repeat("x", 3<<10)}},
		}, "with headers"},
		"large header":     {worker.NewJob{Subject: "jobs.a", Header: nats.Header{"A": {strings.Repeat("x", 17<<10)}}}, "NewJob.Header"},
		"negative delay":   {worker.NewJob{Subject: "jobs.a", Delay: -1}, "NewJob.At"},
		"delay and time":   {worker.NewJob{Subject: "jobs.a", Delay: 1, At: now}, "NewJob.At"},
		"far ahead":        {worker.NewJob{Subject: "jobs.a", At: now.AddDate(11, 0, 0)}, "NewJob.At"},
		"keep for ever":    {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Keep: 1 << 62}}, "NewJob.Unique.Keep"},
		"unrecorded, kept": {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Unrecorded: true, Keep: time.Hour}}, "Unrecorded"},
		"unrecorded, held": {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Unrecorded: true, HoldDead: true}}, "Unrecorded"},
		"unrecorded later": {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Unrecorded: true}, Delay: time.Hour}, "Unrecorded"},
		"unrecorded at":    {worker.NewJob{Subject: "jobs.a", Unique: &worker.Unique{Unrecorded: true}, At: now.Add(time.Hour)}, "Unrecorded"},
		"unencodable":      {worker.NewJob{Subject: "jobs.a", Args: func() {}}, "NewJob.Args"},
		"too large":        {worker.NewJob{Subject: "jobs.a", Args: make([]byte, 1<<20)}, "NewJob.Args"},
		"everything":       {worker.NewJob{ID: "\n", Delay: -1, Args: func() {}}, "NewJob.Args"},
		"another's stream": {worker.NewJob{Subject: "other.a"}, "subjects do not cover"},
	} {
		_, err := c.Insert(t.Context(), test.job)

		failed, ok := errors.AsType[*worker.InsertError](err)
		check.That(t, ok && strings.Contains(err.Error(), test.want) && !failed.Unknown,
			"%s: %v, want an InsertError that names %q", name, err, test.want)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Insert(ended, worker.NewJob{Args: 1, Subject: "jobs.x"})
	check.ErrorIs(t, err, context.Canceled)
	check.Equal(t, b.storedMessages(t), 0, "messages stored")

	_, err = worker.NewClient(nil, worker.ClientConfig{DeadSubject: "a.>", RequestTimeout: -1, Stream: "a.b"})
	check.That(t, err != nil && strings.Count(err.Error(), "worker: ") == 4, "NewClient: %v, want four complaints", err)
}

func TestStreamThatCannotTakeAJobIsNamed(t *testing.T) {
	t.Parallel()

	b := setup(t, nil) // without anything for keys
	c := client(t, b.js)

	for name, test := range map[string]struct {
		job  worker.NewJob
		want []string
	}{
		"delayed": {worker.NewJob{Subject: "jobs.a", Delay: time.Hour}, []string{"jobs-later.a", "allow_msg_schedules", "allow_rollup"}},
		"kept":    {mail(worker.Unique{Keep: time.Hour}), []string{"jobs-done.mail.u17", "allow_msg_ttl", "allow_rollup"}},
	} {
		_, err := c.Insert(t.Context(), test.job)

		_, ok := errors.AsType[*worker.DriftError](err)
		check.That(t, ok, "%s: %v, want a DriftError", name, err)

		for _, want := range test.want {
			check.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %q in it", name, err, want)
		}
	}

	_, err := c.Schedule(t.Context(), minutely())
	_, ok := errors.AsType[*worker.DriftError](err)
	check.That(t, ok, "scheduled: %v, want a DriftError", err)

	r := insert(t, c, mail(worker.Unique{}))
	check.That(t, !r.Duplicate, "unique, not kept: %+v, want it accepted: it needs nothing", r)

	r = insert(t, c, mail(worker.Unique{}))
	check.That(t, r.Duplicate, "unique, again: %+v", r)

	none := client(t, b.js, func(cfg *worker.ClientConfig) { cfg.Stream = "NONE" })

	_, err = none.Insert(t.Context(), worker.NewJob{Subject: "none.a"})
	_, ok = errors.AsType[*worker.MissingError](err)
	check.That(t, ok, "no stream: %v, want a MissingError", err)

	_, err = none.Insert(t.Context(), worker.NewJob{Subject: "jobs.a"})
	check.That(t, err != nil && b.storedMessages(t) == 1, "another's stream: %v, %d stored; want an error, 1", err, b.storedMessages(t))
}

// mail is a unique job.
func mail(unique worker.Unique) worker.NewJob {
	unique.Key = "u17"
	return worker.NewJob{Args: order{N: 1}, Subject: "jobs.mail", Unique: &unique}
}

// TestUniqueJobInEveryState inserts a job beside one of its key in each state.
func TestUniqueJobInEveryState(t *testing.T) {
	t.Parallel()

	fail := func(context.Context, *worker.Job[order]) error { return worker.Discard(errors.New("no")) }

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

				check.Equal(t, receive(t, b.settled, "the job").Outcome, test.outcome, "first job")

				check.ErrorIs(t, r.wait(), nil)
			}

			s := jobOf(t, c, mailRef)
			check.That(t, s.State == test.state && (s.State == free || s.ID == first.ID),
				"%+v; want %s, job %s", s, test.state, first.ID)

			second := insert(t, c, test.second)
			check.That(t, second.Duplicate == test.duplicate && (!second.Duplicate || second.ID == first.ID && second.State == test.state),
				"second: %+v, want duplicate %t of %+v in state %s", second, test.duplicate, first, test.state)

			check.Equal(t, b.storedMessages(t), 1, "messages of the key")
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

	var group sync.WaitGroup
	var receipts [rivals][]worker.Receipt

	for r := range rivals {
		_, js := connect()
		c := client(t, js)

		group.Go(func() {
			jobs := make([]worker.NewJob, contested)
			for k := range jobs {
				jobs[k] = job(r, k)
			}

			var err error
			receipts[r], err = insertAll(t.Context(), c, jobs)
			check.ErrorIs(t, err, nil)
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

		check.Equal(t, accepted, 1, fmt.Sprintf("key %d: inserts accepted", k))
	}

	_, js := connect()
	check.Equal(t, stored(t, js), contested, "messages stored")
	return receipts
}

func TestOneOfManyInsertsIsAccepted(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		receipts := race(t, connect, func(rival, key int) worker.NewJob {
			job := worker.NewJob{Args: order{N: rival}, Subject: "jobs.k", Unique: &worker.Unique{Key: fmt.Sprint(key), Keep: time.Hour}}
			if (rival+key)%2 == 0 {
				return later(job)
			}
			return job
		})

		for r := range rivals {
			for k, got := range receipts[r] {
				check.That(t, got.ID == receipts[0][k].ID && got.Sequence == receipts[0][k].Sequence && got.State == receipts[0][k].State,
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

	// A unique job is identified by its key alone, whatever its ID: the ID of one that has
	// gone must not be in the way.
	unique := mail(worker.Unique{})
	unique.ID = "i 1"

	r := insert(t, c, unique)
	check.That(t, !r.Duplicate, "unique: %+v", r)

	r = insert(t, c, unique)
	check.That(t, r.Duplicate && r.State == worker.StateQueued, "unique, again: %+v", r)

	check.Equal(t, b.storedMessages(t), 2, "messages")
}
