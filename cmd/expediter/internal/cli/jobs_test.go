package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// works is `works`: it starts a NATS server, with the stream JOBS, schedules, and a worker "cook" of jobs.work.>, whose handler fails
// for the payload "fail", hangs for "hang", and sends back others. It ends with the script, and sets NATS_URL. The first job has failed,
// and the second one hangs.
func works(ts *testscript.TestScript, _ bool, _ []string) {
	srv, err := natsrun.Start(natsrun.Config{Listen: true, Memory: true})
	ts.Check(err)
	ts.Defer(srv.Stop)
	ts.Setenv("NATS_URL", srv.URL())
	ts.Check(work(ts, srv))
}

func work(ts *testscript.TestScript, srv *natsrun.Server) error {
	ctx, cancel := context.WithCancel(context.Background())
	nc, err := srv.Connect()
	if err != nil {
		cancel()
		return err
	}
	ts.Defer(func() { cancel(); nc.Close() })
	js, err := jetstream.New(nc)
	ts.Check(err)
	_, err = js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>"))
	ts.Check(err)
	settled, hangs := make(chan struct{}, 10), make(chan struct{}, 10)
	w, err := worker.New(js, worker.Config{
		AutoCreate: true, Concurrency: 4, Consumer: "cook", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), Stream: "JOBS", Version: "v1.2.3",
		Hooks: worker.Hooks{Settled: func(worker.Settlement) { settled <- struct{}{} }}, SoftStop: -1,
	})
	ts.Check(err)
	ts.Check(worker.Handle(w, "jobs.work.>", worker.Policy{MaxAttempts: 2}, func(ctx context.Context, job *worker.Job[string]) error {
		switch job.Args {
		case "fail":
			return worker.Cancel(&json.SyntaxError{})
		case "hang":
			hangs <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return worker.Snooze(time.Hour)
	}))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	ts.Defer(func() { cancel(); ts.Check(<-done) })
	client, err := worker.NewClient(js, worker.ClientConfig{AllowUntaken: true, Stream: "JOBS"})
	ts.Check(err)
	for _, p := range []worker.Periodic{
		{Cron: "0 9 * * *", Name: "digest", Subject: "jobs.work", TimeZone: "Asia/Jerusalem"},
		{Every: 90 * time.Minute, Name: "sweep", Subject: "jobs.work"},
	} {
		_, err := client.Schedule(ctx, p)
		ts.Check(err)
	}
	for _, payload := range []string{"fail", "hang"} {
		_, err := client.Insert(ctx, worker.NewJob{Args: payload, ID: "id-" + payload, Subject: "jobs.work." + payload})
		ts.Check(err)
	}
	<-settled
	<-hangs
	return nil
}

func TestNextRun(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, text)
		check.OK(t, err)
		return at
	}
	now := at("2026-07-01T08:30:00Z")
	for want, s := range map[string]worker.Scheduled{
		"2026-07-01T09:00:00Z": {Cron: "0 0 9 * * *"},
		"2026-07-02T06:00:00Z": {Cron: "0 0 9 * * *", TimeZone: "Asia/Jerusalem"}, // today's was at 06:00 UTC
		"2026-07-05T00:00:00Z": {Cron: "@weekly"},
		"2026-07-01T08:30:15Z": {Cron: "*/15 * * * * *"},
		"2026-07-01T09:30:00Z": {Every: time.Hour, Since: at("2026-07-01T08:29:59.7Z")},
		"2026-07-01T08:30:07Z": {Every: 10 * time.Second, Since: at("2026-06-01T00:00:06.6Z")},
	} {
		got, err := nextRun(s, now)
		check.That(t, err == nil && got.Equal(at(want)), "%+v: %s, %v, want %s", s, got, err, want)
	}
	for _, s := range []worker.Scheduled{{Cron: "hello"}, {Cron: "0 0 9 * * *", TimeZone: "Mars/Base"}} {
		got, err := nextRun(s, now)
		check.That(t, err != nil, "%+v: %s, want an error", s, got)
	}
}
