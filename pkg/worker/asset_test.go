package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

	assertDead(t, b, "dead", declared.Subjects)
	assertDead(t, b, "graves", []string{"graves.>"})
}

func assertDead(t *testing.T, b *bundle, subject string, want []string) {
	t.Helper()

	ready := make(chan bool, 10)
	cfg := b.config(t, func(c *worker.Config) { c.DeadSubject, c.Hooks.Ready = subject, func(is bool, _ error) { ready <- is } })
	r := run(t, b.js, cfg, worker.Policy{}, complete)

	for !receive(t, ready, "the worker to be ready") {
		continue
	}

	check.OK(t, r.wait())

	s := check.Must(b.js.Stream(t.Context(), strings.ToUpper(subject)))(t)

	have := slices.Clone(s.CachedInfo().Config.Subjects)
	slices.Sort(have)
	want = slices.Clone(want)
	slices.Sort(want)

	check.That(t, slices.Equal(have, want), "%s takes %v, want %v", subject, have, want)
}

// TestMissingJobStreamIsNotAutoCreates checks the advice of an error: no worker makes the
// stream of its jobs.
func TestMissingJobStreamIsNotAutoCreates(t *testing.T) {
	t.Parallel()

	_, js := natstest.Connect(t, natstest.Server(t))
	r := run(t, js, (&bundle{js: js}).config(t), worker.Policy{}, complete)
	r.once = true
	err := receive(t, r.done, "Run to return")

	missing, ok := errors.AsType[*worker.MissingError](err)
	check.That(t, ok && missing.Asset == "stream JOBS" && !strings.Contains(missing.Error(), "AutoCreate"),
		"%v, want stream JOBS missing, and nothing of AutoCreate", err)
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

// loseAnswer loses the answer to the first message that matches.
func loseAnswer(p *natstest.Proxy, matches func(natstest.Frame) bool) {
	reply := ""

	p.Filter(func(f natstest.Frame) natstest.Verdict {
		switch {
		case f.FromClient && reply == "" && matches(f):
			reply = f.Reply
		case !f.FromClient && reply != "" && f.Subject == reply:
			reply = "-" // the one is lost
			return natstest.Lose
		}
		return natstest.Relay
	})
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
// lie between those that its consumer has delivered. A consumer that is only told of the
// pattern passes over them: one server keeps them and delivers them never, three delete them.
func TestNewPatternTakesTheJobsThatWereThereBefore(t *testing.T) {
	for name, patterns := range map[string][]string{
		"added": {"jobs.a", "jobs.b"}, "wider": {"jobs.*"}, "instead": {"jobs.b"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bundle) {
				worked := make(chan string, 10)

				for range 2 {
					b.publish(t, "jobs.b", `{}`)
					b.publish(t, "jobs.a", `{}`)
				}

				older := handleAll(t, b, worked, "jobs.a")

				for range 2 {
					check.Same(t, "worked", receive(t, worked, "the jobs that have a handler"), "jobs.a")
				}

				check.OK(t, older.wait())

				handleAll(t, b, worked, patterns...)

				for range 2 {
					check.Same(t, "worked", receive(t, worked, "the jobs that have got a handler"), "jobs.b")
				}
			})
		})
	}
}

// TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem gives the worker of a stream that is no work
// queue one more pattern. Nothing but its consumer knows there which jobs were worked.
func TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := &bundle{srv: srv}
		b.nc, b.js = natstest.Connect(t, srv)

		check.OK(t, check.Err(b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}})))

		worked := make(chan string, 10)
		older := handleAll(t, b, worked, "jobs.a")

		b.publish(t, "jobs.a", `{}`)
		receive(t, worked, "the first job")

		check.OK(t, older.wait())

		handleAll(t, b, worked, "jobs.a", "jobs.b")
		pass(time.Second)
		b.publish(t, "jobs.b", `{}`)

		check.Same(t, "worked", receive(t, worked, "the next job"), "jobs.b")

		pass(time.Minute)

		if len(worked) != 0 {
			t.Errorf("worked %s once more", <-worked)
		}
	})
}

// TestOlderWorkerLeavesTheConsumerOfANewerOneAsItIs has two versions of a worker share a
// consumer, which the newer one makes again for a pattern that the older one does not have.
func TestOlderWorkerLeavesTheConsumerOfANewerOneAsItIs(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		older, newer := make(chan string, 10), make(chan string, 10)

		handleAll(t, b, older, "jobs.a")
		b.publish(t, "jobs.a", `{}`)
		receive(t, older, "the older worker")

		_, js := natstest.Connect(t, b.srv)
		handleAll(t, &bundle{js: js, nc: b.nc, srv: b.srv}, newer, "jobs.a", "jobs.b")
		pass(time.Second) // in which the older one finds the consumer again

		for n := range 5 {
			b.publish(t, "jobs.b", `{}`)

			check.Same(t, fmt.Sprintf("%d: the newer worker worked", n), receive(t, newer, "the newer worker"), "jobs.b")
		}
	})
}

// A job that no consumer takes is refused before it is stored, as soon as the stream has consumers.
func TestJobThatNoConsumerTakes(t *testing.T) {
	natstest.Bubble(t, refuseUntaken)
}

func refuseUntaken(t *testing.T, srv *natsrun.Server) {
	t.Helper()
	b := keyed(t, srv)
	c, open := client(t, b.js), client(t, b.js, func(c *worker.ClientConfig) { c.AllowUntaken = true })
	mail, report := worker.NewJob{Subject: "jobs.mail"}, worker.Periodic{Every: time.Hour, Name: "nightly", Subject: "jobs.report"}
	insert(t, client(t, b.js), mail) // nobody works anything yet

	take := func(name, filter string) {
		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, Durable: name, FilterSubject: filter,
		})))
	}
	take("mailer", "jobs.mail.>")
	take("reporter", "jobs.report")
	before, begun := b.left(t), time.Now()
	_, inserted := c.Insert(t.Context(), mail)
	insert(t, c, worker.NewJob{Subject: "jobs.mail.7"})
	_, again := c.Insert(t.Context(), mail)
	_, scheduled := c.Schedule(t.Context(), report)
	for call, err := range map[string]error{"Insert": inserted, "second Insert": again, "Schedule": scheduled} {
		untaken, ok := errors.AsType[*worker.UntakenError](err)
		check.That(t, ok && len(untaken.Filters) == 2, "%s: %v", call, err)
	}
	took := time.Since(begun)
	check.That(t, took >= 5*time.Second && took <= 6*time.Second, "it took %s, want five seconds, and no time for the second", took)
	check.Same(t, "messages", b.left(t), before+1)
	insert(t, open, mail)
	insert(t, c, worker.NewJob{Subject: "jobs.mail", Unique: &worker.Unique{Key: "7"}})
	take("nightly", "jobs.report.*")
	check.OK(t, check.Err(c.Schedule(t.Context(), report)))
}

// A job waits for the consumer of a worker that is making one after the other.
func TestJobWaitsForWorkerThatStarts(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		take := func(name string) {
			check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
				AckPolicy: jetstream.AckExplicitPolicy, Durable: name, FilterSubject: "jobs." + name + ".>",
			})))
		}
		take("high")
		var taking sync.WaitGroup
		taking.Go(func() {
			for _, name := range []string{"normal", "low"} {
				pass(4 * time.Second)
				take(name)
			}
		})
		insert(t, client(t, b.js), worker.NewJob{Subject: "jobs.low.7"})
		taking.Wait() // the consumer is there before the one that made it knows
	})
}

// errorTexts is a slog.Handler that hands on the errors of events.
type errorTexts struct {
	slog.Handler

	to chan<- string // "<event>: <error>"
}

func (h errorTexts) Enabled(context.Context, slog.Level) bool { return true }
func (h errorTexts) WithAttrs([]slog.Attr) slog.Handler       { return h }

func (h errorTexts) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			select {
			case h.to <- r.Message + ": " + a.Value.String():
			default:
			}
		}
		return true
	})
	return nil
}

// TestDeniedPermissionIsNamed takes one permission after the other from a worker. Its events name the subject that was denied.
// With all permissions it works: the list is that of README.md.
func TestDeniedPermissionIsNamed(t *testing.T) {
	permissions := []string{
		"$JS.API.CONSUMER.INFO.JOBS.cook", "$JS.API.STREAM.INFO.KV_jobs", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.MSG.NEXT.JOBS.cook",
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
	told := make(chan string, 1000)
	cfg := b.config(t, func(cfg *worker.Config) {
		cfg.AutoCreate, cfg.Logger = false, slog.New(errorTexts{to: told})
		cfg.RequestTimeout, cfg.SettleTimeout = 200*time.Millisecond, 300*time.Millisecond
	})

	run(t, js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		switch {
		case job.Args.N == 0:
			return worker.Cancel(io.EOF)
		case job.Deliveries == 1:
			return worker.Snooze(0)
		}
		return nil
	})
	b.publish(t, "jobs.1", `{"n":0}`)
	b.publish(t, "jobs.2", `{"n":1}`)

	if c.denied == "" {
		for done := 0; done < 2; {
			if s := receive(t, b.settled, "a settlement"); s.Outcome == worker.OutcomeDead || s.Outcome == worker.OutcomeCompleted {
				done++
			} else if s.Outcome == worker.OutcomeUnknown {
				t.Errorf("%s: %s", s.Subject, s.Outcome)
			}
		}
		return
	}

	for {
		text := receive(t, told, "the denial to be told")
		if strings.HasPrefix(text, c.event+": ") && strings.Contains(text, c.subject) && strings.Contains(text, "ermissions") {
			break
		}
	}
}
