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

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// startRelay starts `expediter relay`, which prints what it says to its standard error, and returns when metrics are served.
func startRelay(t *testing.T, args ...string) running {
	t.Helper()
	return start(t, "Metrics are at ", exec.Command("sh", append([]string{"-c", `exec expediter relay "$@" 2>&1`, "sh"}, args...)...))
}

// The relay makes its table, publishes what is committed, before it runs and while it does, shows metrics, and says at its
// end what it did and what waits.
func TestRelayPublishesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	database := outboxtest.Database(t, installed.Postgres.Find(t)) // skips first
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	arrived := check.Must(js.OrderedConsumer(t.Context(), contracts.StreamEvents, jetstream.OrderedConsumerConfig{}))(t)
	flags := []string{"--database", database, "--server", srv.URL(), "--sync-interval", "always", "--listen", "127.0.0.1:0"}
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
			}})
		}
		check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return outbox.Insert(t.Context(), tx, events...) }))
	}
	insert("e0", "e1")
	status, err = exec.CommandContext(t.Context(), "expediter", "relay", "--status", "--database", database).CombinedOutput()
	check.That(t, err == nil && regexp.MustCompile(`^Waiting: 2, the oldest for \d+\w*s; set aside: 0\.\n$`).Match(status),
		"--status says %s, %v", status, err)
	r := startRelay(t, flags...)
	insert("e2")
	for n := range 3 {
		msg := check.Must(arrived.Next(jetstream.FetchMaxWait(clientTimeout)))(t)
		if e, err := contracts.Decode[contracts.Event](msg.Data()); err != nil || e.EventID != fmt.Sprint("e", n) {
			t.Errorf("event %d is %s, %v", n, msg.Data(), err)
		}
	}
	metrics := get(t, regexp.MustCompile(`http://\S+/metrics`).FindString(r.Output()))
	for _, name := range []string{"outbox_published", "outbox_refused", "outbox_backlog", "outbox_backlog_age_seconds"} {
		check.That(t, strings.Contains(metrics, "\n"+name), "no %s in\n%s", name, metrics)
	}
	r.Interrupt()
	said := r.Output()
	if !strings.Contains(said, "Published 3 (0 of them again), deleted 3, refused 0 times, set aside 0.\n") ||
		!strings.HasSuffix(said, "Waiting: 0, the oldest for 0s; set aside: 0.\n") {
		t.Errorf("it says\n%s", said)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	check.OK(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(body)
}
