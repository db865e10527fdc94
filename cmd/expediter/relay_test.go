package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// startRelay starts `expediter relay`, with its messages on the standard error, and returns when metrics are served.
func startRelay(t *testing.T, args ...string) running {
	t.Helper()
	return start(t, "Metrics are at ", exec.Command("sh", append([]string{"-c", `exec expediter relay "$@" 2>&1`, "sh"}, args...)...))
}

// The relay makes its table, publishes events that are committed before it runs and while it does, serves metrics, and
// reports at its end how many events it published and how many wait.
func TestRelayPublishesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	database := outboxtest.Database(t, testbed.Postgres.Find(t)) // skips first
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	arrived := check.Must(js.OrderedConsumer(t.Context(), contracts.StreamEvents, jetstream.OrderedConsumerConfig{}))(t)
	flags := []string{"--database", database, "--server", srv.URL(), "--listen", "127.0.0.1:0"}
	status, err := exec.CommandContext(t.Context(), "expediter", "relay", "--status", "--database", database).CombinedOutput()
	check.That(t, err != nil && strings.Contains(string(status), "relay --migrate makes it"), "--status without a table says %s", status)
	startRelay(t, append(flags, "--migrate")...).Interrupt()
	conn := check.Must(pgx.Connect(t.Context(), database))(t)
	defer conn.Close(t.Context())
	insert := func(ids ...string) {
		t.Helper()
		var events []outbox.Event
		for _, id := range ids {
			events = append(events, outbox.Event{Event: contracts.Event{
				EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5", Payload: json.RawMessage(`{}`),
				Extra: map[string]json.RawMessage{"restaurant_id": json.RawMessage(`"5"`), "tenant": json.RawMessage(`{"n":1.0,"half":"\ud83d"}`)},
			}})
		}
		check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return outbox.Insert(t.Context(), tx, events...) }))
	}
	insert("e0", "e1")
	status, err = exec.CommandContext(t.Context(), "expediter", "relay", "--status", "--database", database).CombinedOutput()
	check.That(t, err == nil && regexp.MustCompile(`^Waiting: 2, the oldest for \d+\w*s; set aside: 0\.\n$`).Match(status),
		"--status says %s, %v", status, err)
	status, err = exec.CommandContext(t.Context(), "expediter", "relay", "--status", "-o", "json", "--database", database).Output()
	check.That(t, err == nil && regexp.MustCompile(`^{"oldest_seconds":\d+,"set_aside":0,"waiting":2}\n$`).Match(status),
		"as JSON: %s, %v", status, err)
	r := startRelay(t, flags...)
	insert("e2")
	for n := range 3 {
		msg := check.Must(arrived.Next(jetstream.FetchMaxWait(clientTimeout)))(t)
		e, err := contracts.Decode[contracts.Event](msg.Data())
		check.That(t, err == nil && e.EventID == fmt.Sprint("e", n), "event %d is %s, %v", n, msg.Data(), err)
		check.Equal(t, string(e.Extra["restaurant_id"])+string(e.Extra["tenant"]), `"5"{"n":1.0,"half":"\ud83d"}`, "extra")
	}
	metrics := get(t, regexp.MustCompile(`http://\S+/metrics`).FindString(r.Output()))
	check.Contains(t, metrics, "\noutbox_published", "\noutbox_backlog") // the others are those of the package outbox
	r.Interrupt()
	said := r.Output()
	check.That(t, strings.Contains(said, "Published 3 (0 of them again), refused 0 times, set aside 0.\n") &&
		strings.HasSuffix(said, "Waiting: 0, the oldest for 0s; set aside: 0.\n"),
		"it says\n%s", said)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	resp := check.Must((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.Require(t, err == nil && resp.StatusCode == http.StatusOK, "%s: %s, %v", url, resp.Status, err)
	return string(body)
}

// examine runs `expediter doctor`, and returns the cures of its findings.
func examine(t *testing.T, args ...string) (cures map[string]string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "expediter", append([]string{"doctor", "-o", "json"}, args...)...).Output()
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

// The outbox has a table, takes rows, and a relay publishes them.
func TestDoctorOfAnOutbox(t *testing.T) {
	database := outboxtest.Database(t, testbed.Postgres.Find(t)) // skips first
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(contracts.AssetOptions{}), provision.Options{})))
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
