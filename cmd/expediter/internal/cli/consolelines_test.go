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
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// parsed returns the words of a line as a shell reads them, and the command that they call, with its flags set.
func parsed(t *testing.T, line string) (words []string, cmd *cobra.Command) {
	t.Helper()
	out := check.Must(exec.CommandContext(t.Context(), "sh", "-c", `expediter() { printf '%s\000' "$@"; }; `+line).Output())(t)
	words = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	cmd, rest, err := newRoot(Config{Getenv: func(string) string { return "" }}.withDefaults()).Find(words)
	check.Require(t, err == nil && cmd.HasParent(), "%s: %v", line, err)
	check.OK(t, cmd.ParseFlags(rest))
	check.OK(t, cmd.ValidateArgs(cmd.Flags().Args()))
	return words, cmd
}

// A command reads from the line of a filter what the filter has, whatever that is.
func TestLinesHaveTheirFilters(t *testing.T) {
	t.Parallel()
	for command, filter := range map[string]operate.Filter{
		"jobs list": &operate.JobSelection{State: "delivered,running"}, "jobs cancel --all": &operate.JobSelection{State: "queued"},
		"dead list": &operate.DeadLetters{}, "dead replay": &operate.DeadLetters{}, "notifications": &operate.Notifications{State: "failed", RecipientType: "STAFF"},
		"notifications replay": &operate.Notifications{State: "bounced"},
	} {
		for i, f := range filter.Fields() {
			switch {
			case *f.Value != "":
			case f.Of != nil:
				*f.Value = f.Of[0]
			case f.Name != "type":
				*f.Value = fmt.Sprintf("--it's $HOME %d\n\\", i)
			}
		}
		line := operate.Line(command, filter)
		_, cmd := parsed(t, line)
		for _, f := range filter.Fields() {
			if flag := cmd.Flags().Lookup(f.Name); *f.Value != "" || flag != nil {
				check.Require(t, flag != nil, "%s has no flag --%s", command, f.Name)
				check.Equal(t, flag.Value.String(), *f.Value, line+": --"+f.Name)
			}
		}
	}
}

// answers are those of services to the requests of the console and the commands.
var answers = map[string]string{
	"enricher.v1.place": `{"lookups":[]}`, "importer.v1.get": `{"job_id":"it's 1","status":"RUNNING","url":"https://a.example/x"}`,
	"notifier.v1.get":  `{"event_id":"it's 1","event_type":"X","state":"planned","planned":2,"recipients":1}`,
	"notifier.v1.list": `{"notifications":[{"event_id":"it's 1","user_id":"ada","channel":"sms","state":"failed"},{"event_id":"it's 1","state":"pending"}]}`,
}

var shownLine = regexp.MustCompile(`<code[^>]*>(expediter [^<]*)</code>`)

// The program takes each command line that a page shows, and those that only show something work: but for doctor, and for import, which
// asks another server.
func TestLinesOfTheConsole(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	logger := slog.New(slog.DiscardHandler)
	c := check.Must(console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}), Conn: nc,
		Doctor: func(context.Context) ([]console.Finding, error) { return nil, nil }, Logger: logger,
	}))(t)
	t.Cleanup(natstest.Background(t, c.Run))
	for subject, answer := range answers {
		check.OK(t, check.Err(nc.Subscribe(subject, func(m *nats.Msg) { check.OK(t, m.Respond([]byte(answer))) })))
	}
	// A job, a schedule, dead letters, a lock and a worker.
	check.OK(t, check.Err(js.CreateStream(t.Context(), worker.StreamConfig("WORK", "tasks.>"))))
	client := check.Must(worker.NewClient(js, worker.ClientConfig{Stream: "WORK"}))(t)
	job := check.Must(client.Insert(t.Context(), worker.NewJob{Args: 1, Delay: time.Hour, Subject: "tasks.a'b"}))(t)
	check.OK(t, check.Err(client.Schedule(t.Context(), worker.Periodic{Args: 1, Every: time.Hour, Name: "it's", Subject: "tasks.report"})))
	for i, signature := range []string{"smtp: code #", "it's gone"} {
		check.OK(t, check.Err(worker.PublishDeadLetter(t.Context(), js, "dead", worker.DeadLetter{
			Attempts: 5, DeadAt: time.Now(), Error: signature, ID: fmt.Sprint("dead-", i), MaxAttempts: 5, Payload: []byte("{}"), Worker: "vm-3",
			Reason: worker.ReasonExhausted, Sequence: uint64(i + 100), Signature: signature, Stream: "WORK", Subject: "tasks.wait",
		})))
	}
	locks := check.Must(kvlock.NewLocker(t.Context(), js, kvlock.LockerConfig{Bucket: contracts.BucketLocks, TTL: 30 * time.Second}))(t)
	t.Cleanup(locks.Close)
	check.OK(t, check.Err(locks.Acquire(t.Context(), "it's nightly", kvlock.AcquireOptions{})))
	w := check.Must(worker.New(js, worker.Config{AutoCreate: true, Consumer: "cook", ID: "vm-3", Logger: logger, Stream: "WORK"}))(t)
	check.OK(t, worker.Handle(w, "tasks.run.>", worker.Policy{}, func(context.Context, *worker.Job[any]) error { return nil }))
	t.Cleanup(natstest.Background(t, w.Run))
	var all []inspect.Info
	for err := error(nil); len(all) == 0; all, err = inspect.Workers(t.Context(), js) {
		check.That(t, err == nil || errors.Is(err, inspect.ErrNoWorker), "%v", err)
	}
	for _, path := range []string{
		"/", "/dead", "/dead?by=subject", "/dead?by=stream&since=1h", "/dead?signature=smtp%3A+code+%23", "/dead/one?seq=1", "/dead/replays",
		"/dead/rehearsal", "/jobs/WORK", "/jobs/WORK?state=scheduled&subject=tasks.>",
		fmt.Sprint("/jobs/WORK/", job.Sequence), "/keys", "/schedules", "/workers", "/workers/" + all[0].Instance, "/audit", "/doctor",
		"/notifications?event=it%27s+1", "/notifications?user=ada&state=failed", "/imports?id=it%27s+1", "/places?id=it%27s+1", "/dead?by=worker",
		"/dead?worker=vm-3", "/jobs", "/keys/limits", "/jobs/WORK?state=delivered,running,retrying&subject=tasks.>&key=k",
	} {
		page := httptest.NewRecorder()
		c.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
		check.Require(t, page.Code == http.StatusOK, "%s: %s", path, page.Body)
		lines := shownLine.FindAllStringSubmatch(page.Body.String(), -1)
		check.That(t, len(lines) > 0, "%s shows no line: %s", path, page.Body)
		for _, m := range lines {
			line := html.UnescapeString(m[1])
			words, cmd := parsed(t, line)
			acts := cmd.Flags().Lookup("yes") != nil && (slices.Contains(words, "--yes") || cmd.Name() == "replay" && len(cmd.Flags().Args()) == 1) ||
				slices.Contains([]string{"cancel", "doctor", "drain", "pause", "resume", "retry", "status"}, cmd.Name())
			if acts {
				continue
			}
			var out bytes.Buffer
			code := Run(t.Context(), Config{
				Environ: func() []string { return nil }, Getenv: func(name string) string { return map[string]string{"NATS_URL": srv.URL()}[name] },
				Stderr: &out, Stdin: strings.NewReader("{}"), Stdout: io.Writer(&out),
			}, words)
			check.That(t, code == ExitOK || code == ExitNotFound && cmd.Name() == "places", "%s of %s exits with %d: %s", line, path, code, &out)
		}
	}
}
