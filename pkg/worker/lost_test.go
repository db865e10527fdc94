package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// isInsert reports whether a frame carries a job, delayed or not, to the server.
func isInsert(f natstest.Frame) bool {
	return f.FromClient && (strings.HasPrefix(f.Subject, "jobs.") || strings.HasPrefix(f.Subject, "jobs-later."))
}

// TestLostMessagesOfAnInsert loses the job or the server's answer, while a worker works
// whatever arrives. Each job runs once, and no insert calls its own job a duplicate.
func TestLostMessagesOfAnInsert(t *testing.T) {
	jobs := map[string]worker.NewJob{
		"plain":            {Args: order{}, Subject: "jobs.a"},
		"with ID":          {Args: order{}, Subject: "jobs.a", ID: "mine"},
		"unique":           mail(worker.Unique{}),
		"unique, kept":     mail(worker.Unique{Keep: time.Hour}),
		"delayed":          {Args: order{}, Subject: "jobs.a", Delay: time.Second},
		"unique, delayed":  {Args: order{}, Subject: "jobs.a", Delay: time.Second, Unique: &worker.Unique{}},
		"unrecorded":       {Args: order{}, Subject: "jobs.a", ID: "mine", Unique: &worker.Unique{Unrecorded: true}},
		"unique, a minute": {Args: order{}, Subject: "jobs.a", Delay: time.Minute, Unique: &worker.Unique{Keep: time.Hour}, ID: "mine"},
	}

	for name, job := range jobs {
		for _, how := range []natstest.Fault{natstest.WriteLost, natstest.ReplyLost} {
			runKeyedBubble(t, fmt.Sprintf("%s, %s", name, how), func(t *testing.T, b *bundle) { testLost(t, b, job, how) })
		}
	}
}

func testLost(t *testing.T, b *bundle, job worker.NewJob, how natstest.Fault) {
	t.Helper()

	p, js := natstest.Proxied(t, b.srv)
	c := client(t, js)

	var runs atomic.Int32

	run(t, b.js, b.config(t), worker.Policy{}, func(context.Context, *worker.Job[order]) error {
		runs.Add(1)
		return nil
	})

	p.Hit(isInsert, how, 1)

	r := insert(t, c, job)
	check.That(t, !r.Duplicate && (job.ID == "" || r.ID == job.ID), "receipt %+v; want no duplicate", r)

	natstest.Pass(2 * time.Minute)

	check.Equal(t, runs.Load(), 1, "runs")
}

func TestInsertSaysWhenItDoesNotKnow(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		c := client(t, js)

		p.Filter(natstest.Losing(func(f natstest.Frame) bool { return !f.FromClient }))

		begun := time.Now()
		_, err := c.Insert(t.Context(), mail(worker.Unique{}))

		failed, ok := errors.AsType[*worker.InsertError](err)
		check.That(t, ok && failed.Unknown, "%v; want an InsertError, unknown", err)
		within(t, "the tries", time.Since(begun), 9*time.Second, 13*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		_, err = c.Insert(ctx, worker.NewJob{Args: 1, Subject: "jobs.x"})
		failed, ok = errors.AsType[*worker.InsertError](err)

		check.That(t, ok && failed.Unknown && errors.Is(err, context.DeadlineExceeded) && b.storedMessages(t) == 2,
			"%v, %d stored; want an unknown outcome, 2", err, b.storedMessages(t))

		p.Filter(nil)

		r := insert(t, c, mail(worker.Unique{}))
		check.That(t, r.Duplicate && r.State == worker.StateQueued, "again: %+v, want a duplicate of the first", r)
	})
}

// startBehind returns a JetStream context whose stream has a leader that is behind its consumer's, as it happens on three servers:
// it has not stored the job that the consumer has delivered. So it refuses the first write that speaks of the job, with the given
// code, and knows nothing of its key.
func startBehind(t *testing.T, srv *natsrun.Server, code string) (js jetstream.JetStream, refused *atomic.Bool) {
	t.Helper()

	const expected = "\r\n" + jetstream.ExpectedLastSubjSeqHeader + ": "
	refused = new(atomic.Bool)
	p := natstest.NewProxy(t, srv)
	_, js = natstest.Connect(t, srv, p.Through())

	var write, read string // where the answers go

	p.Change(func(f natstest.Frame) []byte {
		switch {
		case f.FromClient && strings.HasPrefix(f.Subject, "jobs-done.") && !refused.Swap(true):
			write = f.Reply
			return bytes.Replace(f.Raw, []byte(expected+"1\r\n"), []byte(expected+"9\r\n"), 1)
		case f.FromClient && write != "" && read == "" && strings.HasPrefix(f.Subject, "$JS.API.STREAM.MSG.GET."):
			read = f.Reply
		case !f.FromClient && f.Subject == write:
			return bytes.Replace(f.Raw, []byte("10071"), []byte(code), 1)
		case !f.FromClient && f.Subject == read:
			return f.With([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`), 0)
		}
		return nil
	})
	return js, refused
}

// TestLeaderBehindTheJobFreesNoKey: that nothing is found of a job's key does not mean that
// its record need not be written.
func TestLeaderBehindTheJobFreesNoKey(t *testing.T) {
	for name, code := range map[string]string{"a leader with the job under way": "10164", "a new leader": "10071"} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			js, refused := startBehind(t, b.srv, code)
			run(t, js, b.config(t), worker.Policy{}, complete)

			job := worker.NewJob{Args: order{N: 1}, Subject: "jobs.a", Unique: &worker.Unique{Keep: time.Hour}}
			insert(t, c, job)

			s := receive(t, b.settled, "the job to end")
			check.Require(t, s.Outcome == worker.OutcomeCompleted && refused.Load(), "the job %s, its record refused %t", s.Outcome, refused.Load())

			again := insert(t, c, job)
			check.That(t, again.Duplicate && again.State == worker.StateDone, "the key of a job that is done and kept: %+v", again)
		})
	}
}

// TestClientAsksAgain loses the first questions of calls about single jobs, schedules and pauses, or the answers.
func TestClientAsksAgain(t *testing.T) {
	calls := map[string]func(context.Context, *worker.Client, worker.JobRef) error{
		"cancel": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Cancel(ctx, ref))
		},
		"job": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Job(ctx, ref))
		},
		"pauses": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error { return check.Err(c.Pauses(ctx)) },
		"run": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.RunNow(ctx, ref))
		},
		"unschedule": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return c.Unschedule(ctx, "jobs.report.nightly")
		},
	}
	for name, call := range calls {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			first := run(t, b.js, b.config(t), worker.Policy{}, complete) // makes the bucket
			natstest.Pass(2 * time.Second)
			check.OK(t, first.wait())
			p, js := natstest.Proxied(t, b.srv)
			for _, fault := range []natstest.Fault{natstest.WriteLost, natstest.ReplyLost} {
				for _, method := range []string{".STREAM.INFO.", ".MSG.GET.", ".MSG.DELETE."} {
					p.Filter(nil)
					r := insert(t, c, worker.NewJob{Delay: time.Hour, Subject: "jobs.mail"})
					check.Must(c.Schedule(t.Context(), worker.Periodic{Subject: "jobs.report", Name: "nightly", Every: 24 * time.Hour}))(t)
					p.Hit(func(f natstest.Frame) bool { return strings.Contains(f.Subject, method) }, fault, 2)
					err := call(t.Context(), client(t, js), worker.JobRef{Sequence: r.Sequence})
					check.That(t, err == nil, "%s, %s: %v", method, fault, err)
				}
			}
		})
	}
}
