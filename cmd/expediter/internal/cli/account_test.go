package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// An administrator makes the streams of each account, replays dead letters of one, publishes an event and looks at inboxes.
func TestCommandsActOnAnAccount(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	env := map[string]string{"NATS_URL": srv.URL(), "NATS_NKEY": users.SeedFile(t, "admin")}
	run := func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if got := Run(t.Context(), Config{
			Getenv: func(name string) string { return env[name] }, Stderr: &out, Stdin: strings.NewReader(eventOfAccount), Stdout: &out,
		}, args); got != want {
			t.Fatalf("expediter %v exits with %d, want %d:\n%s", args, got, want, &out)
		}
		return out.String()
	}
	for account, service := range map[string]string{"ENRICHER": "enricher", "IMPORTER": "importer", "NOTIFIER": "notifier"} {
		run(0, "apply", "--account", account, "--services", service)
	}
	run(0, "apply", "--services", "lock")
	run(5, "apply", "--account", "ENRICHER") // which has no room for the others
	if out := run(5, "apply", "--account", "ENRICHR", "--timeout", "100ms"); strings.Count(out, "stream") > 2 || !strings.Contains(out, "is --account") {
		t.Errorf("of an account that is none:\n%s", out)
	}
	nc, own := natstest.Connect(t, srv, users.As("admin"))
	enricher := natstest.InAccount(t, nc, "ENRICHER")
	check.OK(t, check.Err(worker.PublishDeadLetter(t.Context(), enricher, "dead", worker.DeadLetter{
		Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Error: "status 503", ID: "a", MaxAttempts: 5, Payload: []byte("{}"),
		Reason: worker.ReasonExhausted, Sequence: 1, Signature: "status #", Stream: contracts.StreamEnrichJobs, Subject: "jobs.enrich.wolt.a",
	})))
	run(3, "dead", "list")
	if out := run(0, "dead", "list", "--account", "ENRICHER"); !strings.Contains(out, "status 503") {
		t.Errorf("letters of the account:\n%s", out)
	}
	if out := run(0, "dead", "list", "--account", "IMPORTER"); strings.Contains(out, "status 503") {
		t.Errorf("letters of another account:\n%s", out)
	}
	env["NATS_ACCOUNT"] = "ENRICHER"
	run(0, "dead", "replay", "1")
	if jobs, err := enricher.Stream(t.Context(), contracts.StreamEnrichJobs); err != nil || jobs.CachedInfo().State.Msgs != 1 {
		t.Errorf("the job is not queued again: %v", err)
	}
	if out := run(0, "dead", "list"); strings.Contains(out, "status 503") {
		t.Errorf("the letter stays:\n%s", out)
	}
	run(0, "schedules", "ENRICH_JOBS")
	if out := run(0, "jobs", "list", "--stream", "ENRICH_JOBS"); !strings.Contains(out, "jobs.enrich.wolt.a") {
		t.Errorf("jobs of the account:\n%s", out)
	}
	run(0, "jobs", "cancel", "jobs.enrich.wolt.a", "--stream", "ENRICH_JOBS", "--yes")
	run(3, "jobs", "show", "jobs.enrich.wolt.a", "--stream", "ENRICH_JOBS")
	run(0, "jobs", "pause", "jobs.enrich.>", "--stream", "ENRICH_JOBS")
	run(0, "jobs", "resume", "jobs.enrich.>", "--stream", "ENRICH_JOBS")
	run(0, "emit", "--account", "NOTIFIER", "--via", "stream", "-")
	run(0, "inbox", "ada", "--account", "NOTIFIER")
	run(0, "forget", "ada", "--type", "GUEST", "--yes", "--account", "NOTIFIER")
	check.Same(t, "of one who was erased", run(0, "export", "ada", "--account", "NOTIFIER"), "")
	if out := run(0, "audit"); !strings.Contains(out, "OPERATOR/") || !strings.Contains(out, "forget") {
		t.Errorf("the audit:\n%s", out)
	}
	if out := run(2, "inbox", "ada", "--account", "A.B"); !strings.Contains(out, "--account") {
		t.Errorf("a name that is none:\n%s", out)
	}
	check.Is(t, check.Err(own.Stream(t.Context(), "KV_"+contracts.BucketLocks)), nil)
	if _, err := own.Stream(t.Context(), contracts.StreamEvents); err == nil {
		t.Error("the events are in the operators' account as well")
	}
}

const eventOfAccount = `{"event_id":"e1","event_type":"HELLO","aggregate_type":"GUEST","aggregate_id":"ada","user_id":"ada","payload":{"n":1}}`
