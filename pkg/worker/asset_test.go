package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestMadeDeadStreamTakesWhatTheDeployedOneTakes compares the stream of dead letters that
// AutoCreate makes with the declared one. A second worker, whose letters go elsewhere, finds
// the advisories taken.
func TestMadeDeadStreamTakesWhatTheDeployedOneTakes(t *testing.T) {
	t.Parallel()

	data := check.Must(os.ReadFile("../../deploy/nats/streams/DEAD.json"))(t)

	var declared struct {
		Subjects []string `json:"subjects"`
	}
	check.OK(t, json.Unmarshal(data, &declared))

	b := setup(t, nil)
	for i, want := range [][]string{declared.Subjects, {"graves.>"}} {
		subject := []string{"dead", "graves"}[i]
		r := run(t, b.js, b.config(t, func(c *worker.Config) { c.DeadSubject = subject }), worker.Policy{}, complete)
		check.That(t, receive(t, b.ready, "the worker"), "the worker is not ready")
		check.OK(t, r.wait())
		have := check.Must(b.js.Stream(t.Context(), strings.ToUpper(subject)))(t).CachedInfo().Config.Subjects
		check.Equal(t, slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want)), subject)
	}
}

// body is the payload of a message without headers.
func body(f natstest.Frame) string { return string(f.Payload()) }

// dieAt cuts the client off, for good, at the first message that matches, as if its
// process were killed there. The channel is closed then.
func dieAt(p *natstest.Proxy, moment func(natstest.Frame) bool) <-chan struct{} {
	dead := make(chan struct{})

	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if !moment(f) {
			return natstest.Relay
		}

		close(dead)
		return natstest.Sever
	})
	return dead
}

// requests are those to subjects with the prefix.
func requests(prefix string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return f.Reply != "" && strings.HasPrefix(f.Subject, prefix) }
}

// handleAll starts a worker that sends the subject of each job that it completes to worked.
func handleAll(t *testing.T, b *bundle, worked chan<- string, patterns ...string) *running {
	t.Helper()

	w, err := worker.New(b.js, b.config(t, func(c *worker.Config) {
		c.Hooks.Settled = func(s worker.Settlement) {
			if s.Outcome == worker.OutcomeCompleted {
				worked <- s.Subject
			}
		}
	}))
	check.OK(t, err)

	for _, p := range patterns {
		check.OK(t, worker.Handle(w, p, worker.Policy{}, complete))
	}
	return start(t, w)
}

// TestNewPatternTakesTheJobsThatWereThereBefore gives a worker one more pattern, whose jobs
// lie between those that its consumer has delivered. A consumer that only gets the
// pattern passes over them: one server keeps them and delivers them never, three delete them.
func TestNewPatternTakesTheJobsThatWereThereBefore(t *testing.T) {
	for name, patterns := range map[string][]string{
		"added": {"jobs.a", "jobs.b"}, "wider": {"jobs.*"}, "instead": {"jobs.b"},
	} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			worked := make(chan string, 10)

			for range 2 {
				b.publish(t, "jobs.b", `{}`)
				b.publish(t, "jobs.a", `{}`)
			}

			older := handleAll(t, b, worked, "jobs.a")

			for range 2 {
				check.Equal(t, receive(t, worked, "the jobs that have a handler"), "jobs.a", "worked")
			}

			check.OK(t, older.wait())

			handleAll(t, b, worked, patterns...)

			for range 2 {
				check.Equal(t, receive(t, worked, "the jobs that have got a handler"), "jobs.b", "worked")
			}
		})
	}
}

// TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem gives the worker of a stream that is no work
// queue one more pattern. Nothing but its consumer knows there which jobs were worked.
func TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setupWith(t, srv, jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}})
		worked := make(chan string, 10)
		older := handleAll(t, b, worked, "jobs.a")

		b.publish(t, "jobs.a", `{}`)
		receive(t, worked, "the first job")

		check.OK(t, older.wait())

		handleAll(t, b, worked, "jobs.a", "jobs.b")
		natstest.Pass(time.Second)
		b.publish(t, "jobs.b", `{}`)

		check.Equal(t, receive(t, worked, "the next job"), "jobs.b", "worked")
		natstest.Pass(time.Minute)
		check.Equal(t, len(worked), 0, "jobs that ran again")
	})
}

// TestPatternsThatTheStreamDoesNotTake are of handlers that would never run, or run for what is no job.
func TestPatternsThatTheStreamDoesNotTake(t *testing.T) {
	t.Parallel()
	b := keyed(t, nil)
	for pattern, want := range map[string]string{
		"job.mail": `no job matches the handler's pattern "job.mail"`, "jobs": "no job matches", "*.mail.*": `also takes "jobs-later.>"`, ">": "also takes",
	} {
		err := handleAll(t, b, nil, pattern).refuses()
		_, ok := errors.AsType[*worker.DriftError](err)
		check.That(t, ok && strings.Contains(err.Error(), want), "%s: %v, want a DriftError, %s", pattern, err, want)
	}
}

// startReportingReadiness starts a worker that sends the reasons for which it is not ready, nil when it is, and checks that inspectors get the same.
func startReportingReadiness(t *testing.T, b *bundle) <-chan error {
	t.Helper()
	reasons := make(chan error, 100)
	run(t, b.js, b.config(t, func(c *worker.Config) {
		c.Hooks.Ready = func(ready bool, err error) {
			all, failed := inspect.Workers(context.WithoutCancel(t.Context()), b.js)
			check.That(t, failed == nil && len(all) == 1 && all[0].Ready == ready && (all[0].Problem == "") == ready, "inspectors: %v, %+v", failed, all)
			reasons <- err
		}
	}), worker.Policy{}, complete)
	return reasons
}

// TestWorkerWithoutJobsIsNotReady takes the jobs from a worker that runs: first from the stream, then from the consumer.
func TestWorkerWithoutJobsIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		reasons := startReportingReadiness(t, b)
		check.OK(t, receive(t, reasons, "the worker"))
		set := func(subjects, filter string) {
			s := check.Must(b.js.Stream(t.Context(), stream))(t).CachedInfo().Config
			s.Subjects = []string{subjects}
			check.OK(t, check.Err(b.js.UpdateStream(t.Context(), s)))
			c := check.Must(b.js.Consumer(t.Context(), stream, durable))(t).CachedInfo().Config
			c.FilterSubject, c.FilterSubjects = filter, nil
			check.OK(t, check.Err(b.js.UpdateConsumer(t.Context(), stream, c)))
		}
		for _, lost := range []struct{ subjects, filter, want string }{{"other.>", pattern, "other.>"}, {pattern, "jobs.x", "filter_subjects is [jobs.x]"}} {
			set(lost.subjects, lost.filter)
			for range 2 { // again after a minute
				check.ErrorContains(t, receive(t, reasons, "the loss"), lost.want)
				natstest.Pass(time.Minute)
			}
			set(pattern, pattern)
			check.OK(t, receive(t, reasons, "the jobs to be back"))
		}
	})
}

// TestMistakeThatLastsIsReportedAgain has a limit of the server keep a worker from its consumer.
func TestMistakeThatLastsIsReportedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setupWith(t, srv, jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}, Retention: jetstream.WorkQueuePolicy, MaxConsumers: 1})
		b.makeConsumer(t, "other", "jobs.other")
		reasons := startReportingReadiness(t, b)
		for _, minutes := range []int{0, 1, 2, 4, 8} {
			natstest.Pass(time.Duration(minutes)*time.Minute + 5*time.Second)
			check.Equal(t, len(reasons), 1, fmt.Sprintf("reports after %d minutes", minutes))
			check.ErrorContains(t, receive(t, reasons, "the reason"), "consumer JOBS/cook", "maximum consumers limit")
		}
		check.OK(t, b.js.DeleteConsumer(t.Context(), stream, "other"))
		check.OK(t, receive(t, reasons, "the worker"))
	})
}

// TestOneConsumerOfTwoKindsOfWorkers starts a worker with other handlers beside one that pulls.
func TestOneConsumerOfTwoKindsOfWorkers(t *testing.T) {
	for name, patterns := range map[string][]string{
		"another service": {"jobs.c"}, "another version": {"jobs.a", "jobs.c"}, "a newer version": {"jobs.a", "jobs.b", "jobs.c"},
	} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			worked := make(chan string, 10)
			handleAll(t, b, worked, "jobs.a", "jobs.b")
			natstest.Pass(time.Second)
			second := *b
			_, second.js = natstest.Connect(t, b.srv)
			r := handleAll(t, &second, worked, patterns...)
			if len(patterns) == 1 {
				err := r.refuses()
				_, drifted := errors.AsType[*worker.DriftError](err)
				check.That(t, drifted, "%T", err)
				check.ErrorContains(t, err, "consumer JOBS/cook", "[jobs.a jobs.b]", "Config.Consumer")
			}
			natstest.Pass(time.Second)
			made := func() time.Time {
				return check.Must(b.js.Consumer(t.Context(), stream, durable))(t).CachedInfo().Created
			}
			before := made()
			natstest.Pass(time.Minute)
			check.That(t, made().Equal(before), "the consumer was made again")
			if !r.once {
				b.publish(t, "jobs.c", `{}`)
				check.Equal(t, receive(t, worked, "the job of the newer worker"), "jobs.c", "worked")
				check.OK(t, r.wait()) // the older one takes over
			}
			b.publish(t, "jobs.b", `{}`)
			check.Equal(t, receive(t, worked, "the job"), "jobs.b", "worked")
		})
	}
}

// A job that no consumer takes is refused before it is stored, as soon as the stream has consumers.
func TestJobThatNoConsumerTakes(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c, open := client(t, b.js), client(t, b.js, func(c *worker.ClientConfig) { c.AllowUntaken = true })
		mail, report := worker.NewJob{Subject: "jobs.mail"}, worker.Periodic{Every: time.Hour, Name: "nightly", Subject: "jobs.report"}
		insert(t, client(t, b.js), mail) // nobody works anything yet

		b.makeConsumer(t, "mailer", "jobs.mail.>")
		b.makeConsumer(t, "reporter", "jobs.report")
		before, begun := b.storedMessages(t), time.Now()
		_, inserted := c.Insert(t.Context(), mail)
		insert(t, c, worker.NewJob{Subject: "jobs.mail.7"})
		_, again := c.Insert(t.Context(), mail)
		_, scheduled := c.Schedule(t.Context(), report)
		for call, err := range map[string]error{"Insert": inserted, "second Insert": again, "Schedule": scheduled} {
			untaken, ok := errors.AsType[*worker.UntakenError](err)
			check.That(t, ok && len(untaken.Filters) == 2, "%s: %v", call, err)
		}
		within(t, "both refusals, the second of which needs no time,", time.Since(begun), 5*time.Second, 6*time.Second)
		check.Equal(t, b.storedMessages(t), before+1, "messages")
		insert(t, open, mail)
		insert(t, c, worker.NewJob{Subject: "jobs.mail", Unique: &worker.Unique{Key: "7"}})
		b.makeConsumer(t, "nightly", "jobs.report.*")
		check.OK(t, check.Err(c.Schedule(t.Context(), report)))
	})
}

// A job waits for the consumer of a worker that is making one after the other.
func TestJobWaitsForWorkerThatStarts(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		b.makeConsumer(t, "high", "jobs.high.>")
		var taking sync.WaitGroup
		taking.Go(func() {
			for _, name := range []string{"normal", "low"} {
				natstest.Pass(4 * time.Second)
				b.makeConsumer(t, name, "jobs."+name+".>")
			}
		})
		insert(t, client(t, b.js), worker.NewJob{Subject: "jobs.low.7"})
		taking.Wait() // the consumer is there before the one that made it knows
	})
}

// TestDeniedPermissionIsNamed takes one permission after the other from a worker. Its events name the subject that was denied.
// With all permissions it works: the list is that of README.md.
func TestDeniedPermissionIsNamed(t *testing.T) {
	permissions := []string{
		"$JS.API.CONSUMER.INFO.JOBS.cook", "$JS.API.STREAM.INFO.JOBS", "$JS.API.STREAM.INFO.KV_jobs", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.MSG.NEXT.JOBS.cook",
		"$JS.ACK.JOBS.cook.>", "$JS.API.STREAM.MSG.GET.KV_jobs", "$KV.jobs.excused.>", "dead.JOBS.>", "$JS.API.STREAM.INFO.KV_steps",
	}

	for _, c := range []denial{
		{"", "", ""},
		{"$JS.API.CONSUMER.INFO.JOBS.cook", worker.EventLost, "$JS.API.CONSUMER.INFO.JOBS.cook"},
		{"$JS.API.CONSUMER.MSG.NEXT.JOBS.cook", worker.EventLost, "$JS.API.CONSUMER.MSG.NEXT.JOBS.cook"},
		{"$JS.ACK.JOBS.cook.>", worker.EventJobUnknown, "$JS.ACK.JOBS.cook."},
		{"dead.JOBS.>", worker.EventDeadFailed, "dead.JOBS.jobs.1"},
	} {
		t.Run("without "+c.denied, func(t *testing.T) {
			allowed := slices.DeleteFunc(slices.Clone(permissions), func(p string) bool { return p == c.denied })

			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { testDenied(t, srv, c) }, natstest.Restrict(server.Permissions{
				Publish: &server.SubjectPermission{Allow: allowed}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}))
		})
	}
}

// denial is a permission that a worker does not have, and the event that it reports.
type denial struct{ denied, event, subject string }

func testDenied(t *testing.T, srv *natsrun.Server, c denial) {
	t.Helper()

	b := setup(t, srv)

	// An admin makes everything.
	admin := run(t, b.js, b.config(t), worker.Policy{}, complete)
	receive(t, b.ready, "the admin's worker")

	check.OK(t, admin.wait())

	_, js := natstest.Connect(t, srv, natstest.Restricted(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	var log events
	cfg := b.config(t, func(cfg *worker.Config) {
		cfg.AutoCreate, cfg.Logger = false, log.logger()
		cfg.RequestTimeout, cfg.SettleTimeout = 200*time.Millisecond, 300*time.Millisecond
	})

	run(t, js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		switch {
		case job.Args.N == 0:
			return worker.Discard(io.EOF)
		case job.Deliveries == 1:
			return worker.Snooze(0)
		}
		return nil
	})
	b.publish(t, "jobs.1", `{"n":0}`)
	b.publish(t, "jobs.2", `{"n":1}`)

	if c.denied == "" {
		for done := 0; done < 2; {
			s := receive(t, b.settled, "a settlement")
			check.That(t, s.Outcome != worker.OutcomeUnknown, "%s: %s", s.Subject, s.Outcome)
			if s.Outcome == worker.OutcomeDead || s.Outcome == worker.OutcomeCompleted {
				done++
			}
		}
		return
	}

	check.Until(t, patience(), "the event", func() bool { return log.hasError(c.event, c.subject, "ermissions") })
}
