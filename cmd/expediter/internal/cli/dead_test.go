package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// deadLetters is `deadletters`: it starts a NATS server with dead letters, until the script ends, and sets NATS_URL. They
// are 1 to 3 of one kind of error, 4 of another, 5 was not written by a worker, and 6 is about a stranded message. IMPORT_JOBS
// has that message and one that no consumer takes. With the argument EVENTS there is a dead letter 7 of that stream.
func deadLetters(ts *testscript.TestScript, _ bool, streams []string) {
	js := startServer(ts)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := contracts.AssetOptions{MaxBytes: 64 << 20, Storage: jetstream.MemoryStorage}
	ts.Check(check.Err(provision.Apply(ctx, js, contracts.Streams(options), provision.Options{})))
	for i, text := range []string{"status 503 of p1", "status 503 of p2", "status 502 of p3", "no such place"} {
		dead := worker.DeadLetter{
			Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Deliveries: 6, EnqueuedAt: time.Unix(1700000000, 0), Error: text,
			Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint("claim-", i+1)}}, ID: fmt.Sprint("claim-", i+1), MaxAttempts: 5,
			Payload: fmt.Appendf(nil, `{"placeId":"p%d"}`, i+1), Reason: worker.ReasonExhausted, Sequence: uint64(i + 1), Signature: "status # of p#",
			Stream: contracts.StreamEnrichJobs, Subject: fmt.Sprint("jobs.enrich.wolt.p", i+1), Worker: "host-1",
		}
		if !strings.HasPrefix(text, "status") {
			dead.Reason, dead.Signature, dead.Stack = worker.ReasonDiscarded, text, "goroutine 1 [running]:\n\tmain.go:1"
		}
		ts.Check(check.Err(worker.PublishDeadLetter(ctx, js, "dead", dead)))
	}
	publish := func(subject, data string) { ts.Check(check.Err(js.Publish(ctx, subject, []byte(data)))) }
	publish("jobs.import.high.j1", "{}")
	publish("jobs.import.typo.j2", "{}")
	imports, err := js.Stream(ctx, contracts.StreamImportJobs)
	ts.Check(err)
	stuck, err := imports.GetLastMsgForSubject(ctx, "jobs.import.high.j1")
	ts.Check(err)
	consumer := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "importer", FilterSubject: "jobs.import.high.>"}
	ts.Check(check.Err(imports.CreateConsumer(ctx, consumer)))
	publish("dead.ENRICH_JOBS.jobs.note", "\x00\x01 someone else's \x1b[31m")
	publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.IMPORT_JOBS.importer", fmt.Sprintf(`{"stream_seq":%d,"deliveries":5}`, stuck.Sequence))
	for _, stream := range streams {
		ts.Check(check.Err(worker.PublishDeadLetter(ctx, js, "dead", worker.DeadLetter{
			DeadAt: time.Now(), ID: "e1", Payload: []byte("{}"), Reason: worker.ReasonExhausted, Sequence: 1, Stream: stream, Subject: "events.USER.HELLO",
		})))
	}
}

// emptyServer is `emptyserver`: it starts a NATS server without streams, until the script ends, and sets NATS_URL.
func emptyServer(ts *testscript.TestScript, _ bool, _ []string) { startServer(ts) }

func startServer(ts *testscript.TestScript) jetstream.JetStream {
	srv, err := natsrun.Start(natsrun.Config{Listen: true, Memory: true})
	ts.Check(err)
	ts.Defer(srv.Stop)
	ts.Setenv("NATS_URL", srv.URL())
	nc, err := srv.Connect()
	ts.Check(err)
	ts.Defer(nc.Close)
	js, err := jetstream.New(nc)
	ts.Check(err)
	return js
}

func TestTimesOfFilters(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "7d": now.AddDate(0, 0, -7), "0s": now, "2026-01-02T15:04:05Z": time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
		"": {}, "yesterday": {}, "-1h": {}, "-1d": {}, "99999999d": {}, "1.5d": {}, // no times
	} {
		got, err := deadletter.ParseTime(now, text)
		check.That(t, got.Equal(want) && (err != nil) == want.IsZero(), "%q is %s, %v, want %s", text, got, err, want)
	}
}

// A column has as many cells as its marks say, and one without marks has any number. Where lines are wider than 100 cells, spare columns
// are left out first, from the right, and then the widest are shortened.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length        int
		columns, want string
	}{
		{200, "A~", "60"}, {200, "A~~ B~", "49 49"}, {200, "A~ B C~ D", "24 200 24 200"}, {200, "A- B~", "60"}, {40, "A B- C~ D-", "40 40"}, {20, "A B- C D- E-", "20 20 20 20"},
	} {
		var out strings.Builder
		columns := strings.Fields(c.columns)
		rows := (&globals{config: Config{Stdout: &out}}).rows("table", "", columns...)
		rows.Add(nil, slices.Repeat([]any{strings.Repeat("x", c.length)}, len(columns))...)
		check.OK(t, rows.Close(nil))
		_, line, _ := strings.Cut(out.String(), "\n")
		var widths []int
		for cell := range strings.FieldsSeq(line) {
			widths = append(widths, utf8.RuneCountInString(cell))
		}
		check.Equal(t, fmt.Sprint(widths), "["+c.want+"]")
	}
}

// A failed job that is due says "now", as on the console.
func TestNextOfAJob(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for want, as := range map[string]worker.StoredJob{
		"now": {State: worker.StateRetrying}, "2026-01-10T12:00:00Z": {Next: at, State: worker.StateRetrying}, "": {State: worker.StateRunning},
	} {
		check.Equal(t, nextOf(worker.StoredJob{}, &as), want, string(as.State))
	}
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
	(&globals{config: cfg}).notef("dead letter %d: %s\n", 1, "publish to jobs.\x1b[2J\u202e")
	report(cfg, &cobra.Command{}, errors.New("one\ntwo\x1b]0;x\a"))
	check.Equal(t, out.String(), "dead letter 1: publish to jobs.\ufffd[2J\ufffd\nerror: one\ntwo\ufffd]0;x\ufffd\n")
}

// works is `works`: it starts a NATS server, with the stream JOBS, schedules, and a worker "cook" of jobs.work.>, whose handler fails
// for the payload "fail", hangs for "hang", and sends back others. It ends with the script, and sets NATS_URL. The first job has failed,
// and the second one hangs.
func works(ts *testscript.TestScript, _ bool, _ []string) {
	js := startServer(ts)
	ctx, cancel := context.WithCancel(context.Background())
	ts.Defer(cancel)
	ts.Check(check.Err(js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>"))))
	log := worker.StreamConfig("LOG", "log.>")
	log.Retention = jetstream.LimitsPolicy
	ts.Check(check.Err(js.CreateStream(ctx, log)))
	for _, name := range []string{"audit", "kitchen"} {
		ts.Check(check.Err(js.CreateConsumer(ctx, "LOG", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: name})))
	}
	settled, hangs := make(chan struct{}, 10), make(chan struct{}, 10)
	w, err := worker.New(js, worker.Config{
		AutoCreate: true, Concurrency: 4, Consumer: "cook", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), Stream: "JOBS", Version: "v1.2.3",
		Hooks: worker.Hooks{Settled: func(worker.Settlement) { settled <- struct{}{} }}, SoftStop: -1,
	})
	ts.Check(err)
	ts.Check(worker.Handle(w, "jobs.work.>", worker.Policy{MaxAttempts: 2}, func(ctx context.Context, job *worker.Job[string]) error {
		switch job.Args {
		case "fail":
			return worker.Discard(&json.SyntaxError{})
		case "hang":
			hangs <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		case "retry":
			return worker.Retry(time.Hour, errors.New("bank http://ada:secret@bank.example: 503"))
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
		ts.Check(check.Err(client.Schedule(ctx, p)))
	}
	for _, payload := range []string{"fail", "hang", "retry"} {
		ts.Check(check.Err(client.Insert(ctx, worker.NewJob{Args: payload, ID: "id-" + payload, Subject: "jobs.work." + payload})))
	}
	<-settled
	<-settled
	<-hangs
	for job := (worker.StoredJob{}); job.State != worker.StateRetrying; {
		job, err = client.Job(ctx, worker.JobRef{Subject: "jobs.work.retry"})
		ts.Check(err)
	}
}

// inserts is `inserts STREAM SUBJECT...`: it inserts a job on each subject, and one behind "later:" with a delay.
func inserts(ts *testscript.TestScript, _ bool, args []string) {
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	client, err := worker.NewClient(js, worker.ClientConfig{Stream: args[0]})
	ts.Check(err)
	for _, subject := range args[1:] {
		job := worker.NewJob{Subject: strings.TrimPrefix(subject, "later:")}
		if job.Subject != subject {
			job.Delay = time.Hour
		}
		ts.Check(check.Err(client.Insert(context.Background(), job)))
	}
}

// A demo that broke a promise, or did not come to its end, is a failure, and the figures say so.
func TestDemoThatFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	g := &globals{config: Config{Stdout: &out}}
	check.ErrorIs(t, g.conclude(demo.Report{Broken: []string{"x"}}, nil, "json"), errBroken)
	check.ErrorIs(t, g.conclude(demo.Report{OK: true}, context.Canceled, "json"), context.Canceled)
	check.That(t, strings.Count(out.String(), `"ok":false`) == 2, "%s", &out)
	check.OK(t, g.conclude(demo.Report{OK: true}, nil, "text"))
}
