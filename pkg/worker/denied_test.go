package worker_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

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
