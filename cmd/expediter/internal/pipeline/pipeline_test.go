package pipeline

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 2) }

// mirror is a provider that finds every place under its own name, and counts.
type mirror struct{ calls atomic.Int64 }

func (*mirror) Name() string { return contracts.ProviderWolt }

func (m *mirror) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	m.calls.Add(1)
	return []provider.Venue{{ID: "v-" + place.Name, Place: place, URL: "https://example.org/" + place.Name}}, nil
}

// begin starts a pipeline that the test stops.
func begin(t *testing.T, cfg Config) *Pipeline {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	p, err := Start(t.Context(), cfg)
	check.OK(t, err)
	t.Cleanup(func() {
		check.Is(t, p.Stop(), nil)
	})
	return p
}

func request(names ...string) contracts.EnrichRequest {
	req := contracts.EnrichRequest{CityText: "Haifa", WaitMS: 20_000}
	for _, name := range names {
		req.Results = append(req.Results, contracts.Restaurant{PlaceID: "p-" + name, Name: name, Address: "Herzl 7"})
	}
	return req
}

func TestEmbeddedTellsScoreAndVenue(t *testing.T) {
	t.Parallel()
	p := begin(t, Config{NATSPort: -1, Provider: &mirror{}})
	answer, err := Embedded{p}.Enrich(t.Context(), request("Alma", "Basel"))
	check.OK(t, err)
	for i, name := range []string{"Alma", "Basel"} {
		state, _ := answer.Response.Results[i].State(contracts.ProviderWolt)
		check.Equal(t, contracts.FoundState("https://example.org/"+name), state)
		detail := answer.Details["p-"+name]
		check.That(t, !(detail.Score <= 0.5) && detail.Venue != nil && detail.Venue.ID == "v-"+name, "details of %s: %+v", name, detail)
	}
	if p.NATSURL() != "" || p.Enrichers[0].URL() != "" {
		t.Errorf("it listens at %q and %q though nobody asked for it", p.NATSURL(), p.Enrichers[0].URL())
	}
}

func TestEmbeddedReportsABadRequest(t *testing.T) {
	t.Parallel()
	p := begin(t, Config{NATSPort: -1, Provider: &mirror{}})
	check.Contains(t, check.Err((Embedded{p}).Enrich(t.Context(), request(""))), "/results/0/name")
}

// The instances are one service: what one has found out the other knows.
func TestEnrichersShareResults(t *testing.T) {
	t.Parallel()
	m := &mirror{}
	p := begin(t, Config{Enrichers: []string{"127.0.0.1:0", "127.0.0.1:0"}, NATSPort: -1, Provider: m})
	req := request("Alma")
	for _, e := range p.Enrichers {
		answer, err := Remote{URL: e.URL() + "/"}.Enrich(t.Context(), req)
		check.OK(t, err)
		check.Same(t, e.URL(), answer.Response.Pending, 0)
		req.WaitMS = 0 // the second one has to know
	}
	check.Same(t, "the provider is asked, times", m.calls.Load(), 1)
}

func TestDirKeepsResults(t *testing.T) {
	t.Parallel()
	m, dir := &mirror{}, t.TempDir()
	for range 2 {
		p, err := Start(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler), NATSPort: -1, Provider: m})
		check.OK(t, err)
		answer, err := Embedded{p}.Enrich(t.Context(), request("Alma"))
		check.That(t, err == nil && answer.Response.Pending == 0, "%v, %+v", err, answer.Response)
		check.OK(t, p.Stop())
	}
	check.Same(t, "the provider is asked, times", m.calls.Load(), 1)
}

// Start leaves nothing running or locked when something cannot start.
func TestStartCleansUpAfterAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer listener.Close()
	cfg := Config{
		Dir: dir, Enrichers: []string{"127.0.0.1:0", listener.Addr().String()}, Logger: slog.New(slog.DiscardHandler), Provider: &mirror{},
	}
	_, err = Start(t.Context(), cfg)
	check.Require(t, err != nil && strings.Contains(err.Error(), "enricher 2"), "got %v", err)
	cfg.Enrichers = nil
	begin(t, cfg) // the directory is free again
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := Start(ctx, Config{Logger: slog.New(slog.DiscardHandler), NATSPort: -1, Provider: &mirror{}})
	if err == nil {
		t.Error("it starts all the same", p.Stop())
	}
}

func TestNATSPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	port := listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // asked for TCP
	check.OK(t, listener.Close())
	p := begin(t, Config{NATSPort: port, Provider: &mirror{}})
	if want := "nats://127.0.0.1:" + strconv.Itoa(port); p.NATSURL() != want {
		t.Fatalf("NATSURL is %q, want %q", p.NATSURL(), want)
	}
	nc, err := nats.Connect(p.NATSURL())
	check.OK(t, err)
	nc.Close()
}

// What nats.go would write to the standard error is a line of the log.
func TestLogOfConnections(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := Pipeline{logger: slog.New(slog.NewTextHandler(&log, nil)), server: natstest.Server(t)}
	nc, err := p.Connect()
	check.OK(t, err)
	nc.Close()
	nc.Opts.AsyncErrorCB(nc, nil, nats.ErrSlowConsumer)
	want := `level=ERROR msg=NATS error="` + nats.ErrSlowConsumer.Error() + `"`
	check.That(t, strings.Contains(log.String(), want), "it logs %q, want %q in it", &log, want)
}

// What is kept of a place is gone soon when nobody will ask for it again.
func TestResultTTL(t *testing.T) {
	t.Parallel()
	p := begin(t, Config{NATSPort: -1, Provider: &mirror{}, ResultTTL: time.Minute})
	check.OK(t, check.Err((Embedded{p}).Enrich(t.Context(), request("Alma"))))
	js, err := jetstream.New(p.Conns[0])
	check.OK(t, err)
	for _, bucket := range []string{contracts.BucketEnrich, contracts.BucketRequests} {
		stream, err := js.Stream(t.Context(), "KV_"+bucket)
		check.OK(t, err)
		msg, err := stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq)
		check.OK(t, err)
		ttl, err := parseTTL(msg.Header.Get("Nats-TTL"))
		if err != nil || ttl <= 0 || ttl > 66*time.Second {
			t.Errorf("bucket %s keeps its last key for %q, %v", bucket, msg.Header.Get("Nats-TTL"), err)
		}
	}
}

// parseTTL reads a TTL as the server does: a duration, or seconds.
func parseTTL(text string) (time.Duration, error) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(text)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers, which takes seconds")
	}
	p := begin(t, Config{Nodes: 3, Provider: &mirror{}})
	t.Cleanup(func() { // before Stop: a server that is shut down while it makes a replica leaves goroutines behind
		check.Is(t, p.cluster.WaitReady(context.WithoutCancel(t.Context())), nil)
	})
	if n := strings.Count(p.NATSURL(), "nats://"); n != 3 || strings.Contains(p.NATSURL(), " ") {
		t.Errorf("NATSURL is %q", p.NATSURL())
	}
	answer, err := Embedded{p}.Enrich(t.Context(), request("Alma"))
	check.That(t, err == nil && answer.Response.Pending == 0, "%v, %+v", err, answer.Response)
	nc, err := p.Connect()
	check.OK(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check.OK(t, err)
	stream, err := js.Stream(t.Context(), "KV_"+contracts.BucketEnrich)
	check.OK(t, err)
	check.Same(t, "replicas", stream.CachedInfo().Config.Replicas, 3)
}
