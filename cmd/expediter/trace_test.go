package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// collector receives traces by OTLP over HTTP.
type collector struct {
	*testing.T

	mu    sync.Mutex
	spans []span
}

type span struct {
	*traces.Span

	service string
}

// newCollector starts one that the exports of the test, and of programs that it starts, send to.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{T: t}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch traces.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &batch)
		}
		check.ErrorIs(t, err, nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, from := range batch.GetResourceSpans() {
			name := ""
			for _, a := range from.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					name = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range from.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, span{s, name})
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return c
}

// exports starts those of a program. The function that it returns sends the rest.
func (c *collector) exports(name string) (*export.Exports, func()) {
	c.Helper()
	x := check.Must(export.Start(c.Context(), export.Config{Service: name}))(c)
	return x, sync.OnceFunc(func() { check.ErrorIs(c, x.Stop(c.Context()), nil) })
}

// tree prints the spans as one tree: below each those that have it as their parent, and behind a "~" those that link to it.
func (c *collector) tree() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.spans, func(a, b span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	below, known := map[string][]span{}, map[string]bool{}
	for _, s := range c.spans {
		known[string(s.GetSpanId())] = true
	}
	for _, s := range c.spans {
		above := string(s.GetParentSpanId())
		if !known[above] && len(s.GetLinks()) == 1 {
			above = string(s.GetLinks()[0].GetSpanId())
		}
		if !known[above] {
			above = ""
		}
		below[above] = append(below[above], s)
	}
	var b strings.Builder
	var show func(above, indent string)
	show = func(above, indent string) {
		for _, s := range below[above] {
			link := ""
			if len(s.GetParentSpanId()) == 0 && len(s.GetLinks()) > 0 {
				link = "~ "
			}
			kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"))
			fmt.Fprintf(&b, "%s%s%s: %s (%s)\n", indent, link, s.service, s.GetName(), kind)
			show(string(s.GetSpanId()), indent+"  ")
		}
	}
	show("", "")
	return b.String()
}

// shows checks the tree of all spans.
func (c *collector) shows(want string) {
	c.Helper()
	got := c.tree()
	c.Log("\n" + got)
	check.That(c, got == want, "the trace is\n%s\nwant\n%s", got, want)
}

// waiting is a provider that finds every place, when it may.
type waiting struct{ may chan struct{} }

func (waiting) Name() string { return contracts.ProviderWolt }

func (w waiting) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	select {
	case <-w.may:
	case <-ctx.Done():
	}
	return []provider.Venue{{ID: "v", Place: place, URL: "https://example.org/v"}}, nil
}

// A request, the job that it queues, the call of the provider, and the stream of its patches are one tree.
func TestOneTraceFromARequestToItsPatch(t *testing.T) {
	c := newCollector(t)
	x, flush := c.exports("enricher")
	app, flushApp := c.exports("app")
	nc, _ := natstest.Connect(t, natstest.Server(t))
	far := waiting{may: make(chan struct{})}
	e, err := enricher.Start(t.Context(), nc, enricher.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Exports: x, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)},
		Enabled:    true, Providers: []provider.Provider{far},
	})
	check.OK(t, err)
	ctx, root := app.Tracers.Tracer("app").Start(t.Context(), "search")
	client := http.Client{Timeout: clientTimeout}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL()+"/v1/enrich", strings.NewReader(
		`{"requestId":"r1","cityText":"Haifa","results":[{"placeId":"p1","name":"Alma","address":"Herzl 7"}]}`))
	check.OK(t, err)
	post.Header.Set("Content-Type", "application/json")
	app.Propagator.Inject(ctx, propagation.HeaderCarrier(post.Header))
	answer := check.Must(client.Do(post))(t)
	check.OK(t, answer.Body.Close())
	root.End()
	follow := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL()+"/v1/requests/r1/events", http.NoBody))(t)
	events := check.Must(client.Do(follow))(t)
	close(far.may)
	text, err := io.ReadAll(events.Body) // it ends with the last patch
	check.OK(t, err)
	check.OK(t, events.Body.Close())
	check.That(t, strings.Contains(string(text), "https://example.org/v"), "no patch in %s", text)
	check.ErrorIs(t, e.Stop(), nil)
	flush()
	flushApp()
	c.shows(`app: search (internal)
  enricher: POST /v1/enrich (server)
    enricher: send ENRICH_JOBS (producer)
      ~ enricher: process jobs.enrich.> (consumer)
        enricher: call wolt (client)
    ~ enricher: GET /v1/requests/{requestId}/events (server)
`)
}

// pager is a channel that hands over each message.
type pager chan channel.Message

func (pager) Name() string { return "pager" }

func (p pager) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
	p <- m
	return channel.Receipt{ID: m.ID}, nil
}

// An event that is committed with a transaction, its relay, plan and notification, and its sending are one trace.
func TestOneTraceFromATransactionToItsNotification(t *testing.T) {
	database := outboxtest.Database(t, testbed.Postgres.Find(t)) // skips first
	c := newCollector(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	x, flush := c.exports("notifier")
	app, flushApp := c.exports("app")
	taken := make(pager, 10)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte("{version: 1, events: {OUTAGE: {ADMIN: {scope: all, channels: [pager]}}}}"), 0o600))
	n, err := notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Exports: x, Listen: "-", Logger: slog.New(slog.DiscardHandler)},
		Channels:   []notifier.Channel{{Channel: taken}}, Rules: rules,
	})
	check.OK(t, err)
	check.OK(t, n.Directory.Put(t.Context(), contracts.Recipient{
		RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"pager": "7"},
	}))
	relay := startRelay(t, "--database", database, "--server", srv.URL(), "--listen", "127.0.0.1:0", "--migrate")
	conn := check.Must(pgx.Connect(t.Context(), database))(t)
	defer conn.Close(t.Context())
	ctx, root := app.Tracers.Tracer("app").Start(t.Context(), "checkout")
	headers := map[string]string{}
	app.Propagator.Inject(ctx, propagation.MapCarrier(headers))
	check.OK(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return outbox.Insert(ctx, tx, outbox.Event{Headers: headers, Event: contracts.Event{
			EventID: "e1", EventType: "OUTAGE", AggregateType: "SITE", AggregateID: "1", Payload: json.RawMessage(`{}`),
		}})
	}))
	root.End()
	check.Equal(t, (<-taken).UserID, "ada", "user")
	check.ErrorIs(t, n.Stop(), nil)
	relay.Interrupt()
	flush()
	flushApp()
	c.shows(`app: checkout (internal)
  expediter-relay: send EVENTS (producer)
    ~ notifier: process events.> (consumer)
      ~ notifier: process notify.plan.* (consumer)
        notifier: send NOTIFICATIONS (producer)
          ~ notifier: process notify.send.pager.> (consumer)
            notifier: call pager (client)
`)
}
