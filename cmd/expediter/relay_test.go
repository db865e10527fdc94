package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/notifier/outbox"
	"github.com/expediter-io/expediter/services/notifier/outbox/outboxtest"
)

// relay is `expediter relay` as it runs.
type relay struct {
	cmd  *exec.Cmd
	said string // on its standard error, so far
	tell *bufio.Reader
}

// startRelay starts it and returns when it has said what matches.
func startRelay(t *testing.T, until string, args ...string) *relay {
	t.Helper()
	r := &relay{cmd: exec.CommandContext(t.Context(), "expediter", append([]string{"relay"}, args...)...)}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.tell = bufio.NewReader(stderr)
	for !strings.Contains(r.said, until) {
		line, err := r.tell.ReadString('\n')
		r.said += line
		if err != nil {
			t.Fatalf("it ended: %v, %v\n%s", err, r.cmd.Wait(), r.said)
		}
	}
	return r
}

// stop interrupts it and returns all that it said.
func (r *relay) stop(t *testing.T) string {
	t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r.tell)
	if err != nil {
		t.Error(err)
	}
	r.said += string(rest)
	if code := exitCode(t, r.cmd.Wait()); code != 0 {
		t.Errorf("an interrupt ends with %d:\n%s", code, r.said)
	}
	return r.said
}

// The relay makes its table, publishes what is committed, before it runs and while it does, shows metrics, and says at its
// end what it did and what waits.
func TestRelayPublishesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	database := outboxtest.Database(t) // skips first
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	if _, err := contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	arrived, err := js.OrderedConsumer(t.Context(), contracts.StreamEvents, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--database", database, "--server", srv.URL(), "--sync-interval", "always", "--listen", "127.0.0.1:0"}
	startRelay(t, "Metrics are at ", append(flags, "--migrate")...).stop(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	insert := func(ids ...string) {
		t.Helper()
		var events []outbox.Event
		for _, id := range ids {
			events = append(events, outbox.Event{Event: contracts.Event{
				EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5", Payload: json.RawMessage(`{}`),
			}})
		}
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return outbox.Insert(t.Context(), tx, events...) }); err != nil {
			t.Fatal(err)
		}
	}
	insert("e0", "e1")
	status, err := exec.CommandContext(t.Context(), "expediter", "relay", "--status", "--database", database).CombinedOutput()
	if err != nil || !regexp.MustCompile(`^Waiting: 2, the oldest for \d+\w*s; set aside: 0\.\n$`).Match(status) {
		t.Errorf("--status says %s, %v", status, err)
	}
	r := startRelay(t, "Metrics are at ", flags...)
	insert("e2")
	for n := range 3 {
		msg, err := arrived.Next(jetstream.FetchMaxWait(clientTimeout))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := contracts.Decode[contracts.Event](msg.Data()); err != nil || e.EventID != fmt.Sprint("e", n) {
			t.Errorf("event %d is %s, %v", n, msg.Data(), err)
		}
	}
	metrics := get(t, regexp.MustCompile(`http://\S+/metrics`).FindString(r.said))
	for _, name := range []string{"outbox_published", "outbox_refused", "outbox_backlog", "outbox_backlog_age_seconds"} {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("no %s in\n%s", name, metrics)
		}
	}
	said := r.stop(t)
	if !strings.Contains(said, "Published 3 (0 of them again), deleted 3, refused 0 times, set aside 0.\n") ||
		!strings.HasSuffix(said, "Waiting: 0, the oldest for 0s; set aside: 0.\n") {
		t.Errorf("it says\n%s", said)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(body)
}
