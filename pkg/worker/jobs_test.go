package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// all reads all pages of a filter, and checks the cost of each.
func all(t testing.TB, c *worker.Client, f worker.JobFilter) (jobs []worker.StoredJob) {
	t.Helper()
	for {
		page := check.Must(c.Jobs(t.Context(), f))(t)
		if most := max(f.Limit, 100); len(page.Jobs) > most || page.Looked > 1000 {
			t.Errorf("page of %d jobs, looked at %d; want at most %d, 1000", len(page.Jobs), page.Looked, most)
		}
		jobs = append(jobs, page.Jobs...)
		if f.From = page.Next; f.From.Sequence == 0 {
			return jobs
		}
	}
}

// states returns the states of jobs by the last token of their subjects.
func states(jobs []worker.StoredJob) map[string]worker.State {
	found := make(map[string]worker.State)
	for _, j := range jobs {
		found[j.Subject[len("jobs."):]] = j.State
	}
	return found
}

// unique is a job of the tests in this file.
func unique(subject string, n int, keep time.Duration) worker.NewJob {
	return worker.NewJob{Args: order{N: n}, Subject: "jobs." + subject, Unique: &worker.Unique{Keep: keep}}
}

func TestJobsAreListedWithTheirStates(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		one := func(c *worker.Config) { c.Concurrency = 1 }
		run(t, b.js, b.config(t, one), worker.Policy{Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
			switch job.Args.N {
			case 1:
				return nil
			case 2:
				return worker.Discard(errors.New("no"))
			case 3:
				natstest.Pass(4 * time.Second)
				return worker.Retry(time.Hour, errors.New("not yet"))
			}
			<-ctx.Done()
			return ctx.Err()
		})
		schedule(t, c, minutely())
		for n, name := range []string{"0", "done", "dead", "retrying"} {
			if n > 0 {
				insert(t, c, unique(name, n, time.Hour))
				<-b.settled
			}
		}
		insert(t, c, unique("running", 4, 0))
		insert(t, c, worker.NewJob{Args: order{N: 4}, Subject: "jobs.queued"})
		for range 2 {
			insert(t, c, worker.NewJob{Delay: time.Hour, Subject: "jobs.later"})
		}
		natstest.Pass(time.Second)
		check.Equal(t, states(all(t, c, worker.JobFilter{}))["running"], worker.StateDelivered)
		natstest.Pass(3 * time.Second)

		jobs := all(t, c, worker.JobFilter{})
		check.Equal(t, states(jobs), map[string]worker.State{
			"done": worker.StateDone, "dead": worker.StateDead, "retrying": worker.StateRetrying, "running": worker.StateRunning,
			"queued": worker.StateQueued, "later": worker.StateScheduled,
		})
		check.Equal(t, len(jobs), 7, "jobs")
		for i, j := range jobs {
			if i > 0 && j.Sequence <= jobs[i-1].Sequence {
				t.Errorf("job at %d behind the one at %d", j.Sequence, jobs[i-1].Sequence)
			}
			one := check.Must(c.Job(t.Context(), worker.JobRef{ID: j.ID, Sequence: j.Sequence}))(t)
			check.Equal(t, one, j)
			switch j.State { //nolint:exhaustive // the others have nothing more
			case worker.StateRunning, worker.StateRetrying:
				check.That(t, j.Progress != nil && j.Progress.Worker == t.Name() && j.Progress.Attempt == 1 && j.Consumer == durable,
					"%s of consumer %q: %+v", j.Subject, j.Consumer, j.Progress)
			case worker.StateScheduled:
				left := time.Until(j.Due)
				check.That(t, left >= 59*time.Minute && left <= time.Hour, "due in %s, want within the hour", left)
			case worker.StateQueued:
				check.Equal(t, string(j.Payload), `{"n":4}`, "payload")
			}
		}
		some := all(t, c, worker.JobFilter{States: []worker.State{worker.StateQueued, worker.StateRetrying}, Subject: "jobs.*"})
		check.Equal(t, len(some), 2, "selected by state")
		for _, state := range []worker.State{worker.StateDelivered, worker.StateRetrying, worker.StateRunning} {
			for _, j := range all(t, c, worker.JobFilter{Limit: 1, States: []worker.State{state}}) {
				check.Equal(t, j.State, state, "state")
			}
		}
	})
}

// TestFailedJobsAreRetrying looks at jobs after each attempt, without a worker when they are due, and beyond the bound of the records.
func TestFailedJobsAreRetrying(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		const bound = 10_000
		c := client(t, b.js)
		failing := func(_ context.Context, job *worker.Job[order]) error {
			switch name := job.Subject[len("jobs."):]; {
			case name == "snoozes", name == "both" && job.Attempt > 1:
				return worker.Snooze(2 * time.Hour)
			case name == "runs" && job.Attempt > 1:
				natstest.Pass(30 * time.Minute)
			case name == "both", name == "runs":
				return worker.Retry(time.Minute, errors.New("again"))
			}
			return worker.Retry(time.Hour, fmt.Errorf("bank %s: %w", "http://ada:secret@bank.example", errors.New("503")))
		}
		shows := func(when, name string, state worker.State, attempt int, failure string, next time.Duration) {
			t.Helper()
			j := jobOf(t, c, worker.JobRef{Subject: "jobs." + name})
			left := time.Duration(0)
			if !j.Next.IsZero() {
				left = time.Until(j.Next).Round(time.Minute)
			}
			check.That(t, j.State == state && j.Attempt == attempt && j.Error == failure && left == next, "%s: %s is %+v, due in %s", when, name,
				j, left)
			found := all(t, c, worker.JobFilter{States: []worker.State{state}, Subject: j.Subject})
			check.That(t, len(found) == 1 && found[0].Error == failure && found[0].Next.Equal(j.Next), "%s: listed as %+v", when, found)
		}
		r := run(t, b.js, b.config(t), worker.Policy{Jitter: -1}, failing)
		const lost = "bank http://bank.example: 503"
		for _, name := range []string{"fails", "snoozes", "both", "runs"} {
			b.publish(t, "jobs."+name, `{}`)
			<-b.settled
		}
		natstest.Pass(time.Second)
		shows("after the first attempt", "fails", worker.StateRetrying, 1, lost, time.Hour)
		shows("after the first attempt", "snoozes", worker.StateDelivered, 0, "", 2*time.Hour)
		<-b.settled
		natstest.Pass(time.Second)
		shows("between attempts", "both", worker.StateRetrying, 1, "again", 2*time.Hour)
		shows("in the second attempt", "runs", worker.StateDelivered, 1, "again", 0)
		natstest.Pass(10 * time.Minute)
		shows("in the second attempt", "runs", worker.StateRunning, 2, "again", 0)
		<-b.settled
		natstest.Pass(time.Second)
		shows("after the second attempt", "runs", worker.StateRetrying, 2, lost, time.Hour)

		check.OK(t, r.wait())
		natstest.Pass(50 * time.Minute)
		shows("without a worker", "fails", worker.StateRetrying, 1, lost, 0)

		b.publishN(t, bound)
		run(t, b.js, b.config(t), worker.Policy{Jitter: -1}, failing)
		natstest.Pass(time.Minute)
		bucket := check.Must(b.js.Stream(t.Context(), "KV_jobs"))(t)
		kept := len(check.Must(bucket.Info(t.Context(), jetstream.WithSubjectFilter("$KV.jobs.excused.*.*.failed.*")))(t).State.Subjects)
		check.Equal(t, kept, bound, "records")
		page := check.Must(c.Jobs(t.Context(), worker.JobFilter{States: []worker.State{worker.StateRetrying}}))(t)
		check.Equal(t, page.Displaced, 4, "jobs whose records are of others")

		check.OK(t, b.js.DeleteStream(t.Context(), stream))
		again := worker.StreamConfig(stream, pattern)
		again.FirstSeq = bound / 2 // that of a job that failed
		check.OK(t, check.Err(b.js.CreateStream(t.Context(), again)))
		natstest.Pass(time.Minute) // until the worker has made its consumer again
		b.publish(t, "jobs.snoozes", `{}`)
		natstest.Pass(time.Second)
		shows("in the stream's next life", "snoozes", worker.StateDelivered, 0, "", 2*time.Hour)
	})
}

func TestPagesAreWholeAndBounded(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		const n = 1100
		for i := range n {
			subject := "jobs.some"
			if i%100 == 70 {
				subject = "jobs.few"
			}
			b.queue(t, subject, fmt.Appendf(nil, `{"n":%d}`, i))
		}
		receive(t, b.js.PublishAsyncComplete(), "jobs to be published")
		key := worker.NewJob{Subject: "jobs.keys", Unique: &worker.Unique{Key: "a b"}}
		r := insert(t, c, key)
		for _, limit := range []int{0, 7, 1000} {
			jobs := all(t, c, worker.JobFilter{Limit: limit})
			check.Equal(t, len(jobs), n+1, "jobs")
			for i, j := range jobs {
				check.Equal(t, j.Sequence, uint64(i+1), "sequence")
			}
		}
		for _, limit := range []int{1, 7, 100} {
			few := all(t, c, worker.JobFilter{Limit: limit, Subject: "jobs.few"})
			check.Equal(t, len(few), n/100, "of few")
			for i, j := range few {
				check.Equal(t, j.Sequence, uint64(100*i+71), "sequence")
			}
		}
		page, err := c.Jobs(t.Context(), worker.JobFilter{Key: "none", Subject: "jobs.>"})
		check.That(t, page.Looked == 1000 && page.Next.Sequence == 1001, "page without jobs: looked at %d, %v; want 1000", page.Looked, err)
		page, err = c.Jobs(t.Context(), worker.JobFilter{Key: "none", Look: 40})
		check.That(t, page.Looked == 40 && page.Next.Sequence == 41, "page without jobs: looked at %d, %v; want 40", page.Looked, err)
		page, err = c.Jobs(t.Context(), worker.JobFilter{Key: "none", Subject: "jobs.keys"})
		check.That(t, err == nil && len(page.Jobs) == 0, "key without a job: %+v, %v", page, err)
		for _, subject := range []string{"", "jobs.keys.*", "jobs.keys"} { // the last is answered at once
			jobs := all(t, c, worker.JobFilter{Key: "a b", Subject: subject})
			check.That(t, len(jobs) == 1 && jobs[0].ID == r.ID && jobs[0].Subject == r.Subject && jobs[0].Consumer == "",
				"with subject %q: %+v, want job %s, which no consumer takes", subject, jobs, r.ID)
		}
		page, err = c.Jobs(t.Context(), worker.JobFilter{Key: "a b", Subject: "jobs.keys"})
		check.That(t, err == nil && page.Looked == 1 && page.Messages == n+1,
			"looked at %d of %d, %v; want 1 of %d", page.Looked, page.Messages, err, n+1)
		for _, f := range []worker.JobFilter{
			{Limit: -1}, {Limit: 1001}, {Look: -1}, {Look: 1001}, {Subject: "jobs..x"}, {Key: strings.Repeat("x", 321)},
		} {
			check.That(t, check.Err(c.Jobs(t.Context(), f)) != nil, "filter %+v was accepted", f)
		}
	})
}

// TestPagesReadLittle lists jobs by their states, and counts them, in a stream in which most are in another.
func TestPagesReadLittle(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		started := make(chan bool, 1)
		one := func(c *worker.Config) { c.Concurrency = 1 }
		run(t, b.js, b.config(t, one), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			if job.Args.N == 1 {
				return nil
			}
			started <- true
			<-ctx.Done()
			return ctx.Err()
		})
		for _, name := range []string{"done.1", "done.2"} {
			insert(t, c, unique(name, 1, time.Hour))
			<-b.settled
		}
		synctest.Wait() // a pull that comes with the message would have the server count it twice
		held := insert(t, c, worker.NewJob{Args: order{}, Subject: "jobs.held"})
		<-started
		for range 500 {
			b.queue(t, "jobs.some", []byte(`{}`))
		}
		receive(t, b.js.PublishAsyncComplete(), "jobs to be published")
		insert(t, c, worker.NewJob{Delay: time.Hour, Subject: "jobs.later"})
		schedule(t, c, worker.Periodic{Args: order{}, Every: 24 * time.Hour, Name: "daily", Subject: "jobs.every"})
		synctest.Wait() // the server counts a message for its consumer a moment after it stored it
		counted := check.Must(c.Jobs(t.Context(), worker.JobFilter{Count: true, States: []worker.State{worker.StateDone}}))(t)
		check.Equal(t, counted.Counts, worker.Counts{
			AsOf: counted.AsOf, Delivered: 1, Messages: 505, Queued: 500, Rest: 4, Ended: 2, Scheduled: 2, Detailed: true,
		})
		first := held.Sequence + 1
		for _, tt := range []struct {
			states []worker.State
			from   uint64
			first  uint64 // of the jobs
			jobs   int
			looked int // at most
		}{
			{[]worker.State{worker.StateDone, worker.StateDead}, 0, 2, 2, 2},
			{[]worker.State{worker.StateDone}, 3, 4, 1, 1},
			{[]worker.State{worker.StateScheduled}, 0, first + 500, 1, 2},
			{[]worker.State{worker.StateDelivered, worker.StateRunning, worker.StateRetrying}, 0, held.Sequence, 1, 3},
			{[]worker.State{worker.StateQueued}, 0, first, 10, 10},
			{[]worker.State{worker.StateQueued}, first + 20, first + 20, 10, 10},
			{[]worker.State{worker.StateQueued, worker.StateRunning}, 0, first, 10, 20},
		} {
			page := check.Must(c.Jobs(t.Context(), worker.JobFilter{From: worker.Cursor{Sequence: tt.from}, Limit: 10, States: tt.states}))(t)
			check.Require(t, len(page.Jobs) == tt.jobs && page.Looked <= tt.looked, "%v: %d jobs in %d messages, want %d in %d",
				tt.states, len(page.Jobs), page.Looked, tt.jobs, tt.looked)
			check.Equal(t, page.Jobs[0].Sequence, tt.first, fmt.Sprintf("%v: first", tt.states))
			check.Equal(t, page.Next.Sequence != 0, tt.jobs == 10, fmt.Sprintf("%v: more", tt.states))
		}
	})
}

func TestListOfARecreatedStreamIsRefused(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		old := insert(t, c, worker.NewJob{Subject: "jobs.a"})
		insert(t, c, worker.NewJob{Subject: "jobs.a"})
		page, err := c.Jobs(t.Context(), worker.JobFilter{Limit: 1})
		check.OK(t, err)

		natstest.Pass(time.Second)
		b.recreate(t)
		insert(t, c, worker.NewJob{Subject: "jobs.a"})
		insert(t, c, worker.NewJob{Subject: "jobs.a"})

		check.ErrorIs(t, check.Err(c.Jobs(t.Context(), worker.JobFilter{From: page.Next, Limit: 1})), worker.ErrCursor)
		_, err = c.Job(t.Context(), worker.JobRef{ID: old.ID, Sequence: old.Sequence, Subject: old.Subject})
		check.ErrorIs(t, err, worker.ErrNoJob)
		want := fmt.Sprintf("worker: no such job: id %q, subject %q, sequence %d", old.ID, old.Subject, old.Sequence)
		check.That(t, err.Error() == want, "got %q, want %q", err, want)
	})
}

// TestJobIsShownAfterItHasMoved asks for jobs by the references of a list from before they ended, or became due.
func TestJobIsShownAfterItHasMoved(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		insert(t, c, unique("kept", 1, time.Hour))
		insert(t, c, unique("free", 1, 0))
		insert(t, c, unique("dead", 2, 0))
		insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.letter"})
		late := unique("late", 1, time.Hour)
		late.Delay = time.Minute
		insert(t, c, late)
		listed := all(t, c, worker.JobFilter{})

		run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			if job.Args.N == 2 {
				return worker.Discard(errors.New("no"))
			}
			return nil
		})
		b.awaitSettled(5)
		want := map[string]worker.State{
			"kept": worker.StateDone, "free": "", "dead": worker.StateDead, "letter": worker.StateDead, "late": worker.StateDone,
		}
		for _, j := range listed {
			name := j.Subject[len("jobs."):]
			for _, id := range []string{j.ID, ""} {
				if name == "late" && id == "" {
					continue // by its ID alone is it known to be the same
				}
				now, err := c.Job(t.Context(), worker.JobRef{ID: id, Sequence: j.Sequence, Subject: j.Subject})
				check.That(t, now.State == want[name] && (err != nil) == (want[name] == "") && (err == nil || errors.Is(err, worker.ErrNoJob)),
					"%s: %q, %v; want %q", name, now.State, err, want[name])
				check.That(t, name != "letter" || now.DeadLetter != nil && now.DeadLetter.Error != "" && string(now.Payload) == `{"n":2}`,
					"letter %+v, payload %s", now.DeadLetter, now.Payload)
			}
		}
		letters := all(t, c, worker.JobFilter{Dead: true, Subject: "jobs.letter"})
		check.That(t,
			len(letters) == 1 && letters[0].DeadLetter.Reason == worker.ReasonDiscarded && len(all(t, c, worker.JobFilter{Dead: true})) == 2,
			"dead letters: %+v", letters)
	})
}

func TestListOfAStreamThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	c := client(t, b.js)
	check.ErrorContains(t, check.Err(c.Jobs(t.Context(), worker.JobFilter{})), "allow_direct")

	check.OK(t, b.js.DeleteStream(t.Context(), stream))
	check.ErrorContains(t, check.Err(c.Jobs(t.Context(), worker.JobFilter{})), "stream JOBS is missing")
}
