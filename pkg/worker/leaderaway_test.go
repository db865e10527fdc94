package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestClientAsksAgain loses the first questions of calls about single jobs, schedules and pauses, or the answers.
func TestClientAsksAgain(t *testing.T) {
	calls := map[string]func(context.Context, *worker.Client, worker.JobRef) error{
		"cancel": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Cancel(ctx, ref))
		},
		"job": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Job(ctx, ref))
		},
		"pauses": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return check.Err(c.Pauses(ctx))
		},
		"run": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.RunNow(ctx, ref))
		},
		"run a schedule": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return check.Err(c.RunSchedule(ctx, "jobs.report.nightly"))
		},
		"unschedule": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return c.Unschedule(ctx, "jobs.report.nightly")
		},
	}
	for name, call := range calls {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)
			first := run(t, b.js, b.config(t), worker.Policy{}, complete) // makes the bucket
			pass(2 * time.Second)
			check.OK(t, first.wait())
			p, js := natstest.Proxied(t, srv)
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

// TestDelayedJobBecomesDueWhileItsCancellationIsLost does not call a job cancelled that has been queued since.
func TestDelayedJobBecomesDueWhileItsCancellationIsLost(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		r := insert(t, client(t, b.js), worker.NewJob{Delay: 2 * time.Second, Subject: "jobs.a"})
		pass(900 * time.Millisecond)
		p.Hit(func(f natstest.Frame) bool { return strings.Contains(f.Subject, ".MSG.DELETE.") }, natstest.WriteLost, 1)
		_, err := client(t, js).Cancel(t.Context(), worker.JobRef{Sequence: r.Sequence})
		check.Contains(t, err, "becomes due at this moment")
	})
}
