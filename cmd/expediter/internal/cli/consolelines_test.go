package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

// answers are those of services to the requests of the console and the commands.
var answers = map[string]string{
	"enricher.v1.place": `{"lookups":[]}`,
	"importer.v1.get":   `{"job_id":"it's 1","status":"RUNNING","url":"https://a.example/x"}`, "importer.v1.cancel": `{"status":"FAILED","code":"cancelled"}`,
	"notifier.v1.get":    `{"event_id":"it's 1","event_type":"X","state":"planned","rows":2,"recipients":1}`,
	"notifier.v1.list":   `{"notifications":[{"event_id":"it's 1","user_id":"ada","channel":"sms","state":"failed"},{"event_id":"it's 1","state":"pending"}]}`,
	"notifier.v1.cancel": `{"suppressed":1}`, "notifier.v1.replay": `{"replayed":1}`,
}

// lines is a console, and the program whose command lines its pages show.
type lines struct {
	*testing.T

	js  jetstream.JetStream
	nc  *nats.Conn
	srv *natsrun.Server
	url string
}

func startLines(t *testing.T) *lines {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, js := natstest.Connect(t, srv)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	logger := slog.New(slog.DiscardHandler)
	c, err := console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}), Conn: nc,
		Doctor: func(context.Context) ([]console.Finding, error) { return nil, nil }, Logger: logger,
	})
	check.OK(t, err)
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	t.Cleanup(natstest.Background(t, c.Run))
	for subject, answer := range answers {
		check.OK(t, check.Err(nc.Subscribe(subject, func(m *nats.Msg) { check.OK(t, m.Respond([]byte(answer))) })))
	}
	return &lines{t, js, nc, srv, web.URL}
}

var shownLine = regexp.MustCompile(`<code[^>]*>(expediter [^<]*)</code>`)

// of returns the command lines that a page shows, without the name of the program, and those of its text that have all of some words.
func (l *lines) of(path string, words ...string) (found []string) {
	l.Helper()
	r := check.Must(http.NewRequestWithContext(l.Context(), http.MethodGet, l.url+path, http.NoBody))(l.T)
	answer := check.Must((&http.Transport{DisableKeepAlives: true}).RoundTrip(r))(l.T)
	defer answer.Body.Close()
	body := check.Must(io.ReadAll(answer.Body))(l.T)
	check.Require(l.T, answer.StatusCode == http.StatusOK, "%s: %s", path, body)
	for _, m := range shownLine.FindAllStringSubmatch(string(body), -1) {
		line := html.UnescapeString(m[1])
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	check.Require(l.T, len(found) > 0, "%s shows no line with %q: %s", path, words, body)
	return found
}

// words are those of a line, as a shell reads them.
func (l *lines) words(line string) []string {
	l.Helper()
	out := check.Must(exec.CommandContext(l.Context(), "sh", "-c", `expediter() { printf '%s\000' "$@"; }; `+line).Output())(l.T)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func (l *lines) config(out io.Writer) Config {
	return Config{
		Environ: func() []string { return nil }, Getenv: func(name string) string { return map[string]string{"NATS_URL": l.srv.URL()}[name] }, Stderr: out,
		Stdin: strings.NewReader(`{"edited":true}`), Stdout: out,
	}
}

// run runs a line that a page shows, which has some words.
func (l *lines) run(path string, words ...string) {
	l.Helper()
	line := l.of(path, words...)[0]
	var out bytes.Buffer
	code := Run(l.Context(), l.config(&out), l.words(line))
	check.Require(l.T, code == ExitOK, "%s exits with %d: %s", line, code, &out)
}

// Each command line that a page shows is one that the program takes, and those that only show do: but for doctor, and for import, which
// asks another server.
func TestLinesOfTheConsole(t *testing.T) {
	t.Parallel()
	l := startLines(t)
	d := l.work()
	for _, path := range []string{
		"/", "/dead", "/dead?by=subject", "/dead?by=stream&since=1h", "/dead?signature=smtp%3A+code+%23", "/dead/letter?seq=1", "/dead/replays",
		"/dead/rehearsal", "/jobs/WORK", "/jobs/WORK?state=scheduled&subject=tasks.>", "/jobs/WORK/all?state=scheduled", d.later[0], d.waiting, "/keys", "/schedules",
		"/workers", d.worker, "/audit", "/doctor", "/notifications?event=it%27s+1", "/notifications?user=ada&state=failed", "/imports?id=it%27s+1",
		"/places?id=it%27s+1", "/dead?by=worker", "/dead?worker=vm-3", "/jobs", "/keys/results", "/keys/results?bucket=enrich", "/keys/limits",
		"/people/it%27s", "/jobs/WORK?state=delivered,running,retrying&subject=tasks.>&key=k",
	} {
		for _, line := range l.of(path) {
			var out bytes.Buffer
			words := l.words(line)
			cmd, rest, err := newRoot(l.config(&out)).Find(words)
			check.Require(t, err == nil && cmd.HasParent(), "%s: %v", line, err)
			check.OK(t, cmd.ParseFlags(rest))
			check.OK(t, cmd.ValidateArgs(cmd.Flags().Args()))
			acts := slices.ContainsFunc(words, func(w string) bool {
				return slices.Contains([]string{"--yes", "cancel", "drain", "pause", "resume", "retry"}, w)
			})
			if words[0] == "doctor" || words[0] == "import" || acts {
				continue
			}
			code := Run(t.Context(), l.config(&out), words)
			check.That(t, code == ExitOK, "%s of %s exits with %d: %s", line, path, code, &out)
		}
	}
}

// workData are the paths of pages.
type workData struct {
	later           []string
	lease           *kvlock.Lease
	waiting, worker string
	client          *worker.Client
}

// work makes jobs, letters, schedules, a lock and a worker.
func (l *lines) work() (d workData) {
	l.Helper()
	check.OK(l.T, check.Err(l.js.CreateStream(l.Context(), worker.StreamConfig("WORK", "tasks.>"))))
	var err error
	d.client = check.Must(worker.NewClient(l.js, worker.ClientConfig{Stream: "WORK"}))(l.T)
	insert := func(subject string, delay time.Duration) string {
		r := check.Must(d.client.Insert(l.Context(), worker.NewJob{Args: 1, Delay: delay, Subject: subject}))(l.T)
		return fmt.Sprintf("/jobs/WORK/%d", r.Sequence)
	}
	d.waiting = insert("tasks.wait", 0)
	d.later = []string{insert("tasks.a'b", time.Hour), insert("tasks.later", time.Hour)}
	for _, name := range []string{"daily", "it's"} {
		check.OK(l.T, check.Err(d.client.Schedule(l.Context(), worker.Periodic{Args: 1, Every: time.Hour, Name: name, Subject: "tasks.report"})))
	}
	for i, signature := range []string{"smtp: code #", "smtp: code #", "it's gone", "other", "other"} {
		check.OK(l.T, check.Err(worker.PublishDeadLetter(l.Context(), l.js, "dead", worker.DeadLetter{
			Attempts: 5, DeadAt: time.Now(), Error: signature, ID: fmt.Sprint("dead-", i), MaxAttempts: 5, Payload: []byte("{}"), Worker: "vm-3",
			Reason: worker.ReasonExhausted, Sequence: uint64(i + 100), Signature: signature, Stream: "WORK", Subject: "tasks.wait",
		})))
	}
	locks, err := kvlock.NewLocker(l.Context(), l.js, kvlock.LockerConfig{Bucket: contracts.BucketLocks, TTL: 30 * time.Second})
	check.OK(l.T, err)
	l.Cleanup(locks.Close)
	d.lease = check.Must(locks.Acquire(l.Context(), "nightly", kvlock.AcquireOptions{}))(l.T)
	w, err := worker.New(l.js, worker.Config{AutoCreate: true, Consumer: "cook", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), Stream: "WORK"})
	check.OK(l.T, err)
	check.OK(l.T, worker.Handle(w, "tasks.run.>", worker.Policy{}, func(context.Context, *worker.Job[any]) error { return nil }))
	l.Cleanup(natstest.Background(l.T, w.Run))
	for d.worker == "" {
		all, err := inspect.Workers(l.Context(), l.nc)
		check.That(l.T, err == nil || errors.Is(err, inspect.ErrNoWorker), "%v", err)
		for _, w := range all {
			d.worker = "/workers/" + w.Instance
		}
	}
	return d
}

// Lines that act do what the page says.
func TestLinesOfTheConsoleAct(t *testing.T) {
	t.Parallel()
	l := startLines(t)
	d := l.work()
	letters := func(want int) {
		t.Helper()
		dead := check.Must(l.js.Stream(t.Context(), contracts.StreamDead))(t)
		check.Same(t, "letters", int(dead.CachedInfo().State.Msgs), want)
	}
	job := func(path string, want worker.State) {
		t.Helper()
		sequence := check.Must(strconv.ParseUint(path[strings.LastIndexByte(path, '/')+1:], 10, 64))(t)
		j, err := d.client.Job(t.Context(), worker.JobRef{Sequence: sequence})
		check.That(t, err == nil && j.State == want, "%s is %v, want %s: %v", path, j.State, want, err)
	}
	l.run("/dead/letter?seq=1", "replay 1")
	l.run("/dead/letter?seq=2", "replay 2", "--payload")
	letters(3)
	l.run("/dead?signature=it%27s+gone", "dead replay", "--rate 10")
	letters(2)
	l.run("/dead/letter?seq=4", "discard 4")
	letters(1)
	l.run("/dead", "dead discard")
	letters(0)

	l.run(d.later[0], "jobs run")
	l.run(d.waiting, "jobs cancel")
	job(d.waiting, worker.StateCancelled)
	l.run("/jobs/WORK/all?state=scheduled&subject=tasks.>", "jobs run", "--all")
	matching := func(want int) {
		t.Helper()
		page, err := d.client.Jobs(t.Context(), worker.JobFilter{Subject: "tasks.later", States: []worker.State{worker.StateQueued}})
		check.That(t, err == nil && len(page.Jobs) == want, "queued: %+v, %v", page.Jobs, err)
	}
	matching(1)
	l.run("/jobs/WORK/all?subject=tasks.later", "jobs cancel", "--all")
	matching(0)
	page, err := d.client.Jobs(t.Context(), worker.JobFilter{Count: true})
	check.That(t, err == nil && page.Counts.Scheduled == 2, "only the two schedules are left: %+v, %v", page.Counts, err)

	pauses := func(want int) {
		t.Helper()
		all, err := d.client.Pauses(t.Context())
		check.That(t, err == nil && len(all) == want, "paused: %v, %v", all, err)
	}
	l.run(d.worker, "jobs pause")
	pauses(1)
	l.run("/workers", "jobs resume")
	pauses(0)
	l.run(d.worker, "jobs pause")
	l.run(d.worker, "jobs resume")
	pauses(0)

	drained := func(want bool) {
		t.Helper()
		all, err := inspect.Workers(t.Context(), l.nc)
		check.That(t, err == nil && len(all) == 1 && all[0].Drained == want, "drained: %+v, %v", all, err)
	}
	l.run(d.worker, "jobs drain")
	drained(true)
	for !strings.Contains(l.of(d.worker, "jobs drain")[0], "--resume") {
		pause.For(t.Context(), 50*time.Millisecond) // the page follows within 2 seconds
	}
	l.run(d.worker, "jobs drain", "--resume")
	drained(false)

	l.run("/schedules", "jobs run", "it")
	l.run("/schedules", "jobs unschedule", "it")
	all, err := d.client.Schedules(t.Context())
	check.That(t, err == nil && len(all) == 1, "schedules: %v, %v", all, err)
	l.run("/keys", "locks steal")
	<-d.lease.Context().Done()
	l.run("/notifications?event=it%27s+1", "notifications cancel")
	l.run("/notifications?event=it%27s+1", "notifications replay")
}
