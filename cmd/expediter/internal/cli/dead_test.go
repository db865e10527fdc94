package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// deadLetters is `deadletters`: it starts a NATS server with dead letters, until the script ends, and sets NATS_URL. The
// letters are 1 to 3 of one kind of error, 4 of another, 5 was not written by a worker, and 6 is about a stranded message. IMPORT_JOBS
// has that message and one that no consumer takes.
func deadLetters(ts *testscript.TestScript, _ bool, _ []string) {
	srv, err := natsrun.Start(natsrun.Config{Listen: true, Memory: true})
	ts.Check(err)
	ts.Defer(srv.Stop)
	ts.Setenv("NATS_URL", srv.URL())
	ts.Check(deadLetter(srv))
}

// emptyServer is `emptyserver`: it starts a NATS server without streams, until the script ends, and sets NATS_URL.
func emptyServer(ts *testscript.TestScript, _ bool, _ []string) {
	srv, err := natsrun.Start(natsrun.Config{Listen: true, Memory: true})
	ts.Check(err)
	ts.Defer(srv.Stop)
	ts.Setenv("NATS_URL", srv.URL())
}

func deadLetter(srv *natsrun.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	options := contracts.AssetOptions{MaxBytes: 64 << 20, Storage: jetstream.MemoryStorage}
	if _, err := contracts.Apply(ctx, js, contracts.Streams(options), contracts.ApplyOptions{}); err != nil {
		return err
	}
	for i, text := range []string{"status 503 of p1", "status 503 of p2", "status 502 of p3", "no such place"} {
		letter := worker.DeadLetter{
			Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Deliveries: 6, EnqueuedAt: time.Unix(1700000000, 0), Error: text,
			Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint("claim-", i+1)}}, ID: fmt.Sprint("claim-", i+1), MaxAttempts: 5,
			Payload: fmt.Appendf(nil, `{"placeId":"p%d"}`, i+1), Reason: worker.ReasonExhausted, Sequence: uint64(i + 1), Signature: "status # of p#",
			Stream: contracts.StreamEnrichJobs, Subject: fmt.Sprint("jobs.enrich.wolt.p", i+1), Worker: "host-1",
		}
		if !strings.HasPrefix(text, "status") {
			letter.Reason, letter.Signature, letter.Stack = worker.ReasonCancelled, text, "goroutine 1 [running]:\n\tmain.go:1"
		}
		if _, err := worker.PublishDeadLetter(ctx, js, "dead", letter); err != nil {
			return err
		}
	}
	for subject, data := range map[string]string{"jobs.import.high.j1": "{}", "jobs.import.typo.j2": "{}"} {
		if _, err := js.Publish(ctx, subject, []byte(data)); err != nil {
			return err
		}
	}
	imports, err := js.Stream(ctx, contracts.StreamImportJobs)
	if err != nil {
		return err
	}
	stuck, err := imports.GetLastMsgForSubject(ctx, "jobs.import.high.j1")
	if err != nil {
		return err
	}
	consumer := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "importer", FilterSubject: "jobs.import.high.>"}
	if _, err := imports.CreateConsumer(ctx, consumer); err != nil {
		return err
	}
	if _, err := js.Publish(ctx, "dead.ENRICH_JOBS.jobs.note", []byte("\x00\x01 someone else's \x1b[31m")); err != nil {
		return err
	}
	_, err = js.Publish(ctx, "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.IMPORT_JOBS.importer",
		fmt.Appendf(nil, `{"stream_seq":%d,"deliveries":5}`, stuck.Sequence))
	return err
}

func TestTimesOfFilters(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "7d": now.AddDate(0, 0, -7), "0s": now, "2026-01-02T15:04:05Z": time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
	} {
		got, err := deadletter.ParseTime(now, text)
		check.That(t, err == nil && got.Equal(want), "%q is %s, %v, want %s", text, got, err, want)
	}
	for _, text := range []string{"", "yesterday", "-1h", "-1d", "99999999d", "1.5d"} {
		got, err := deadletter.ParseTime(now, text)
		check.That(t, err != nil, "%q is %s, want an error", text, got)
	}
}

// A column has as many cells as its marks say, and one without marks has any number.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	rows := (&globals{config: Config{Stdout: &out}}).rows("table", "A~", "B~~", "C")
	text := strings.Repeat("x", 200)
	rows.Add(nil, text, text, text)
	check.OK(t, rows.Close())
	var widths []int
	for _, cell := range strings.Fields(out.String())[3:] {
		widths = append(widths, utf8.RuneCountInString(cell))
	}
	check.Equal(t, []int{60, 120, 200}, widths)
}

// A payload of bytes is not written to a terminal as it is.
func TestReadablePayloads(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		"": "", `{"a":"é"}`: `{"a":"é"}`, "a\n\tb": "a\n\tb", "\x1b[31m": "00000000  1b 5b 33 31 6d", "\xff\xfe\xfd\xfc\xfb": "00000000  ff fe",
	} {
		got := readable([]byte(payload))
		check.That(t, strings.HasPrefix(got, want) && (want != "" || got == ""), "%q is shown as %q, want %q", payload, got, want)
	}
	got := readable([]byte(strings.Repeat("x", 100_000)))
	check.That(t, len(got) <= 70_000 && strings.Contains(got, "--payload"), "a long payload is shown with %d bytes", len(got))
}

// Errors and notes repeat what strangers have written, and keep their lines.
func TestErrorsAreHarmlessToATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	cfg := Config{Stderr: &out}.withDefaults()
	(&globals{config: cfg}).notef("letter %d: %s\n", 1, "publish to jobs.\x1b[2J\u202e")
	report(cfg, &cobra.Command{}, errors.New("one\ntwo\x1b]0;x\a"))
	check.Equal(t, "letter 1: publish to jobs.\ufffd[2J\ufffd\nerror: one\ntwo\ufffd]0;x\ufffd\n", out.String())
}

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

// inserts is `inserts STREAM SUBJECT...`: it inserts a job on each subject.
func inserts(ts *testscript.TestScript, _ bool, args []string) {
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	client, err := worker.NewClient(js, worker.ClientConfig{Stream: args[0]})
	ts.Check(err)
	for _, subject := range args[1:] {
		_, err := client.Insert(context.Background(), worker.NewJob{Subject: subject})
		ts.Check(err)
	}
}

// A demo that broke a promise, or did not come to its end, is a failure, and the figures say so.
func TestDemoThatFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	g := &globals{config: Config{Stdout: &out}}
	check.Is(t, g.conclude(demo.Report{Broken: []string{"x"}}, nil, "json"), errBroken)
	check.Is(t, g.conclude(demo.Report{OK: true}, context.Canceled, "json"), context.Canceled)
	check.That(t, strings.Count(out.String(), `"ok":false`) == 2, "%s", &out)
	check.OK(t, g.conclude(demo.Report{OK: true}, nil, "text"))
}
