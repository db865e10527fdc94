package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// hang keeps a job until the channel is closed, whatever its context says.
func hang(until <-chan struct{}) { <-until }

// inspected returns the Info of the only worker.
func inspected(t *testing.T, js jetstream.JetStream) inspect.Info {
	t.Helper()

	all := check.Must(inspect.Workers(t.Context(), js))(t)

	check.Require(t, len(all) == 1, "%d workers answer, want 1: %+v", len(all), all)
	return all[0]
}

// A worker whose handlers all hang answers with their stacks, its last attempts, and its Info, also while it stops.
func TestAWorkerWhoseHandlersHangAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		hanging, until := make(chan struct{}, 2), make(chan struct{})
		r := run(t, b.js, b.config(t, func(c *worker.Config) {
			c.Concurrency, c.Version = 2, "v1.2.3"
		}), worker.Policy{MaxAttempts: 1, Timeout: time.Minute}, func(_ context.Context, job *worker.Job[order]) error {
			switch {
			case job.Args.N == 0:
				return nil
			case job.Args.N < 0:
				return errors.New("no salt")
			}
			hanging <- struct{}{}
			hang(until)
			return nil
		})
		b.publish(t, "jobs.soup", `{"n":0}`)
		<-b.settled
		b.publish(t, "jobs.tea", `{"n":-1}`)
		<-b.settled

		for range 2 {
			b.publish(t, "jobs.rice", `{"n":1}`)
			<-hanging
		}

		check.OK(t, client(t, b.js).Pause(t.Context(), worker.Pause{Pattern: pattern}))
		natstest.Pass(2 * time.Minute) // they ignore their contexts

		nc, js := natstest.Connect(t, b.srv)
		got := inspected(t, js)
		check.Require(t, len(got.Last.Failing) == 1 && len(got.StuckJobs) == 2 && !got.Now.IsZero(), "%+v", got)
		want := inspect.Info{
			Now: got.Now,
			ID:  t.Name(), Instance: got.Instance, Version: "v1.2.3", Stream: stream, Consumer: durable, Started: got.Started, Ready: true,
			Host: check.Must(os.Hostname())(t), PID: os.Getpid(), Last: inspect.Last{
				Completed: 1, Others: 1, Failing: got.Last.Failing,
				Waits: make([]time.Duration, 2),
			},
			Slots: 2, Running: 2, Stuck: 2, StuckJobs: got.StuckJobs, Paused: []string{pattern}, Attempts: map[string]uint64{"completed": 1, "dead": 1},
			Handlers: []inspect.Handler{{Pattern: pattern, Consumer: durable, MaxAttempts: 1, Timeout: time.Minute}},
		}
		check.Equal(t, got, want)

		recent := check.Must(inspect.RecentOf(t.Context(), js, got.Instance))(t)
		check.Equal(t, cmp.Diff([]inspect.Attempt{
			{Job: "JOBS:2", Subject: "jobs.tea", Sequence: 2, Consumer: durable, Pattern: pattern, Attempt: 1, Waited: 1, Outcome: "dead", Error: "no salt"},
			{Job: "JOBS:1", Subject: "jobs.soup", Sequence: 1, Consumer: durable, Pattern: pattern, Attempt: 1, Waited: 1, Outcome: "completed"},
		}, recent.Attempts, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Started" }, cmp.Ignore())), "")

		now := check.Must(inspect.StacksOf(t.Context(), js, got.Instance))(t)
		check.Equal(t, len(now.Attempts), 2, "attempts run")

		for _, a := range now.Attempts {
			if a.Subject != "jobs.rice" || a.Consumer != durable || a.Attempt != 1 || !a.Stuck || !strings.Contains(a.Stacks, "test.hang") || strings.Contains(a.Stacks, "0x") {
				t.Errorf("%+v", a)
			}
		}

		ping := micro.Ping{}
		msg := check.Must(nc.RequestWithContext(t.Context(), "$SRV.PING.worker."+got.Instance, nil))(t)
		check.OK(t, json.Unmarshal(msg.Data, &ping))
		check.Equal(t, ping.Metadata["id"], t.Name(), "the micro service is of")

		r.stop()
		natstest.Pass(time.Second)
		check.That(t, inspected(t, js).Stopping, "a worker that stops does not say so")
		close(until)
		check.OK(t, r.wait())
		check.ErrorIs(t, check.Err(inspect.Workers(t.Context(), b.js)), inspect.ErrNoWorker)
	})
}

// The wait of a job is that for its first attempt. A worker says for how long 95 % of those that it remembers waited, and ran.
func TestAWorkerSaysForHowLongJobsWaited(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		b.publish(t, "jobs.soup", `{"n":1}`)
		natstest.Pass(3 * time.Second)
		b.publish(t, "jobs.tea", `{"n":2}`)
		natstest.Pass(2 * time.Second)
		policy := worker.Policy{Backoff: func(int) time.Duration { return time.Minute }}
		run(t, b.js, b.config(t, func(c *worker.Config) { c.Concurrency = 2 }), policy, func(_ context.Context, job *worker.Job[order]) error {
			natstest.Pass(time.Duration(job.Args.N) * time.Second)
			if job.Args.N == 2 && job.Attempt == 1 {
				return errors.New("no salt")
			}
			return nil
		})
		b.awaitSettled(3)
		_, js := natstest.Connect(t, b.srv)
		got := inspected(t, js)
		check.Require(t, len(got.Last.Failing) == 1 && !got.Last.Failing[0].At.IsZero(), "%+v, want one pattern that fails", got.Last.Failing)
		got.Last.Failing[0].At, got.Last.Failing[0].Since = time.Time{}, time.Time{}
		check.Equal(t, got.Last.Failing,
			[]inspect.Failing{{Pattern: "jobs.>", Of: 3, Failed: 1, First: 1, Retries: 1, Completed: 1, Error: "no salt"}})
		got.Last.Failing = nil
		check.Equal(t, got.Last,
			inspect.Last{Completed: 2, Others: 1, Ran95: 2 * time.Second, Waits: []time.Duration{2 * time.Second, 5 * time.Second}})
		wait, of := inspect.Wait95(got, inspect.Info{}, inspect.Info{Last: inspect.Last{Waits: make([]time.Duration, 37)}}, got)
		check.That(t, wait == 2*time.Second && of == 41, "waits of %d jobs: %s", of, wait)
		for n, want := range map[int]int{0: 0, 1: 1, 20: 19, 21: 20, 100: 95, 200: 190} {
			all := make([]time.Duration, n)
			for i := range all {
				all[i] = time.Duration(n - i)
			}
			check.Equal(t, int(inspect.P95(all)), want, fmt.Sprint("p95 of 1 to ", n))
		}
	})
}

// Attempts count by handler. Those that were snoozed, handed back or cancelled neither failed nor completed.
func TestSumOfFailures(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	var latestFirst []inspect.Attempt
	for i, outcome := range []string{"completed", "snoozed", "retried", "dead", "handed_back", "completed", "retried", "cancelled"} {
		a := inspect.Attempt{Pattern: "pay", Attempt: 2, Outcome: outcome, Error: fmt.Sprint(i), Started: begun.Add(-time.Duration(i) * time.Second)}
		latestFirst = append(latestFirst, a, inspect.Attempt{Pattern: "mail", Attempt: 1, Outcome: "completed"})
	}
	check.Equal(t, inspect.Sum(latestFirst).Failing, []inspect.Failing{{
		Pattern: "pay", Of: 5, Failed: 3, Retries: 5, Completed: 1, Error: "2", At: begun.Add(-2 * time.Second), Since: begun.Add(-3 * time.Second),
	}})
}

// Two workers with one id are two instances.
func TestTwoWorkersWithOneIDAnswerApart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		for range 2 {
			_, js := natstest.Connect(t, b.srv)
			run(t, js, b.config(t), worker.Policy{}, complete)
			<-b.ready
		}

		all := check.Must(inspect.Workers(t.Context(), b.js))(t)

		check.Require(t, len(all) == 2 && all[0].ID == all[1].ID && all[0].Instance != all[1].Instance, "%+v", all)

		for _, w := range all {
			recent := check.Must(inspect.RecentOf(t.Context(), b.js, w.Instance))(t)
			check.Equal(t, recent.Instance, w.Instance, "the answer is of")
		}
	})
}

// Answers fit into a message of the server, whatever there is to say, and have nothing of payloads, headers and passwords.
func TestAnswersAreBoundedAndHoldNoSecrets(t *testing.T) {
	// The patterns of one consumer have to fit into a message as well.
	for limit, handlers := range map[int32]int{16 << 10: 50, 1 << 20: 1500} {
		if testing.Short() && handlers > 50 {
			continue
		}
		natstest.RunBubble(t, fmt.Sprint(limit), func(t *testing.T, srv *natsrun.Server) {
			testBounds(t, srv, handlers, min(int(limit), 256<<10))
		}, func(c *natsrun.Config) { natsrun.ChangeOptions(c, func(o *server.Options) { o.MaxPayload = limit }) })
	}
}

func testBounds(t *testing.T, srv *natsrun.Server, handlers, limit int) {
	t.Helper()

	b := setup(t, srv)
	until, hanging, settled := make(chan struct{}), make(chan struct{}, 300), make(chan struct{}, 300)
	long := strings.Repeat("x", 700)
	w, err := worker.New(b.js, b.config(t, func(c *worker.Config) {
		c.Concurrency, c.ID = 300, strings.Repeat("<", 320)
		c.Hooks.Settled = func(worker.Settlement) { settled <- struct{}{} }
	}))
	check.OK(t, err)

	fail := func(context.Context, *worker.Job[order]) error {
		return errors.New(strings.Repeat("\x01", 400) + " at nats://svc:hunter2@host/?token=hunter2")
	}
	wait := func(context.Context, *worker.Job[order]) error {
		hanging <- struct{}{}
		hang(until)
		return nil
	}
	check.OK(t, worker.Handle(w, "jobs.fail.>", worker.Policy{MaxAttempts: 1}, fail))
	check.OK(t, worker.Handle(w, "jobs.hang.>", worker.Policy{}, wait))

	for i := range handlers {
		check.OK(t, worker.Handle(w, fmt.Sprintf("jobs.%s.%d", long[:200], i), worker.Policy{}, complete))
	}

	start(t, w)

	msg := func(subject, payload string) {
		m := &nats.Msg{Subject: subject + "." + long, Header: nats.Header{"Key": {"hunter2"}}, Data: []byte(payload)}
		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), m)))
	}

	msg("jobs.fail", `{"n":12345678901234567890,"hunter2":1}`) // which is no int
	<-settled

	for range 210 {
		msg("jobs.fail", `{"n":1,"secret":"hunter2"}`)
		<-settled
	}

	for range 300 {
		msg("jobs.hang", `{"n":1,"secret":"hunter2"}`)
		<-hanging
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for subject, want := range map[string]string{inspect.SubjectInfo: "handlers", inspect.SubjectRecent: "attempts", inspect.SubjectStacks: "attempts"} {
		answer := check.Must(b.nc.RequestWithContext(ctx, subject, nil))(t)

		var got map[string]any
		check.OK(t, json.Unmarshal(answer.Data, &got))

		shown, _ := got[want].([]any)
		check.That(t, len(answer.Data) <= limit && len(answer.Data) >= limit/2 && len(shown) != 0,
			"%s: %d bytes, want %d at most, with %d %s", subject, len(answer.Data), limit, len(shown), want)

		for _, secret := range []string{"hunter2", "12345678901234567890"} {
			check.That(t, !bytes.Contains(answer.Data, []byte(secret)), "%s shows %s:\n%s", subject, secret, answer.Data)
		}
	}

	close(until)
}

// Nobody who may answer hides the workers of others by an empty answer, or fills the memory of who asks.
func TestAnswersOfIntruders(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		r := run(t, b.js, b.config(t), worker.Policy{}, complete)
		<-b.ready

		flood := make([]byte, 512<<10)
		check.Must(b.nc.Subscribe("hidden", func(m *nats.Msg) {
			check.OK(t, b.nc.Publish(m.Reply, nil))
			check.OK(t, b.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"503"}}}))
			check.OK(t, b.nc.Publish(m.Reply, []byte("seen")))
		}))(t)
		check.Must(b.nc.Subscribe("flooded", func(m *nats.Msg) {
			for range 100 {
				check.OK(t, b.nc.Publish(m.Reply, flood))
			}
		}))(t)

		all, err := inspect.Gather(t.Context(), b.nc, "hidden", nil, time.Second)
		check.That(t, err != nil, "no answer is the last one")
		check.That(t, len(all) == 1 && string(all[0]) == "seen", "got %q", all)
		all, err = inspect.Gather(t.Context(), b.nc, "flooded", nil, time.Second)
		check.That(t, err != nil, "a flood has no bound")
		check.That(t, len(all) < 40, "got %d answers of 512 KiB", len(all))
		check.OK(t, r.wait())
	})
}

// Neither a requester without permission nor a worker that may not answer gets further than the server.
func TestInspectionNeedsPermission(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		r := run(t, b.js, b.config(t), worker.Policy{}, complete)
		<-b.ready

		instance := inspected(t, b.js).Instance
		denied := make(chan error, 100)
		_, js := natstest.Connect(t, srv, natstest.Restricted(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))

		briefly := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}

		check.ErrorIs(t, check.Err(inspect.Workers(briefly(), js)), inspect.ErrNoWorker)
		check.ErrorIs(t, <-denied, nats.ErrPermissionViolation)

		check.ErrorIs(t, check.Err(inspect.StacksOf(briefly(), js, instance)), context.DeadlineExceeded)
		check.ErrorIs(t, <-denied, nats.ErrPermissionViolation)
		check.OK(t, r.wait())

		// A worker that may not answer works.
		done := make(chan string, 1)
		run(t, js, b.config(t, func(c *worker.Config) { c.AutoCreate = false }), worker.Policy{}, sendEach(done, subjectOf))
		b.publish(t, "jobs.1", `{}`)
		<-done

		check.ErrorIs(t, check.Err(inspect.Workers(briefly(), b.js)), inspect.ErrNoWorker)
	}, natstest.Restrict(server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"$JS.>", "$KV.>"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}))
}
