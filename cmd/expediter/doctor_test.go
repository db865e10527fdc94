package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// examine runs `expediter doctor`, and returns the cures of what it finds.
func examine(t *testing.T, args ...string) (cures map[string]string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "expediter", append([]string{"doctor", "--json"}, args...)...).Output()
	exitCode(t, err)
	var report struct {
		Findings []struct {
			ID   string `json:"id"`
			Cure string `json:"cure"`
		} `json:"findings"`
	}
	check.OK(t, json.Unmarshal(out, &report))
	cures = map[string]string{}
	for _, f := range report.Findings {
		cures[f.ID] = f.Cure
	}
	return cures
}

// The services that run are healthy.
func TestDoctorOfWhatIsUp(t *testing.T) {
	t.Parallel()
	r := up(t)
	found := examine(t, "--server", r.find(t, `nats://[0-9.:]+`))
	check.That(t, len(found) == 0, "of what is up it finds %v", found)
	r.Interrupt()
}

// The outbox has a table, takes rows, and a relay publishes them.
func TestDoctorOfAnOutbox(t *testing.T) { //nolint:paralleltest // the environment
	database := outboxtest.Database(t, installed.Postgres.Find(t)) // skips first
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(contracts.AssetOptions{}), contracts.ApplyOptions{})))
	t.Setenv("DATABASE_URL", database)
	t.Setenv("NATS_URL", srv.URL())
	conn := check.Must(pgx.Connect(t.Context(), database))(t)
	defer conn.Close(t.Context())
	change := func(sql string) { check.OK(t, check.Err(conn.Exec(t.Context(), sql))) }
	cure := func(id string) {
		t.Helper()
		cures := examine(t)
		check.Require(t, len(cures) == 1 && cures[id] != "", "it finds %v, want %s", cures, id)
		line, _, _ := strings.Cut(cures[id], " #")
		if _, err := exec.LookPath("psql"); err != nil && strings.Contains(line, "psql") {
			line = "true"
			change(outbox.Schema)
		}
		if strings.HasPrefix(line, "expediter relay") && !strings.Contains(line, "--") {
			return // runs until it is interrupted
		}
		shell(t, line)
		found := examine(t)
		check.That(t, len(found) == 0, "after %s it finds %v", line, found)
	}
	cure("outbox.schema")
	check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return outbox.Insert(t.Context(), tx, outbox.Event{Event: contracts.Event{
			EventID: "e", EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5", Payload: json.RawMessage(`{}`),
		}})
	}))
	change("UPDATE event_outbox SET state = 'set_aside'")
	cure("outbox.aside")
	change("UPDATE event_outbox SET created_at = now() - interval '1 hour'")
	cure("outbox.waits")
}
