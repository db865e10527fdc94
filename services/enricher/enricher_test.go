package enricher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain.
const patience = 5 * time.Minute

// named is a provider that finds every place, but those called Nowhere, and fails for those called Trouble.
type named string

func (n named) Name() string { return string(n) }

func (n named) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	switch place.Name {
	case "Nowhere":
		return nil, nil
	case "Trouble":
		return nil, &provider.Error{Kind: provider.KindUnsupported, Provider: string(n)}
	}
	return []provider.Venue{{Place: place, ID: "v", URL: "https://wolt.test/v"}}, nil
}

// buffer is a log that can be read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func config() Config {
	return Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), MaxBytes: 1 << 30,
		},
		Enabled: true, Providers: []provider.Provider{named("wolt")},
	}
}

func begin(t *testing.T, nc *nats.Conn, cfg Config) *Enricher {
	t.Helper()
	e := check.Must(Start(t.Context(), nc, cfg))(t)
	t.Cleanup(func() {
		check.Is(t, e.Stop(), nil)
	})
	return e
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp := check.Must(client.Get(url))(t)
	defer resp.Body.Close()
	data := check.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(data)
}

func restaurant(name string) contracts.Restaurant {
	return contracts.Restaurant{PlaceID: "id-" + name, Name: name, Address: "Harbour Road 1", CityText: "Haifa"}
}

// TestRun runs the service from its configuration, over TCP, as its user in production, asks it, and stops it.
func TestRun(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	administer(t, srv, users)
	log := &buffer{}
	cfg := config()
	cfg.CreateAssets, cfg.NATSNkey, cfg.NATSURL, cfg.Logger = false, users.SeedFile(t, "enricher"), srv.URL(), slog.New(slog.NewJSONHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	client, _ := natstest.Connect(t, srv, users.As("publisher"))
	var msg *nats.Msg
	for deadline := time.Now().Add(patience); ; { // the service says nothing when it is ready, but answers
		var err error
		if msg, err = client.Request("enricher.v1.enrich", []byte(`{"waitMs":30000,"results":[{"placeId":"a","name":"A Kitchen","address":"Harbour Road 1","cityText":"Haifa"}]}`), patience); err == nil {
			break
		}
		check.Require(t, errors.Is(err, nats.ErrNoResponders) && !time.Now().After(deadline), "%v", err)
	}
	if resp, err := contracts.Decode[contracts.EnrichResponse](msg.Data); err != nil || resp.Pending != 0 {
		t.Errorf("answer is %s, %v", msg.Data, err)
	}
	cancel()
	check.Is(t, <-done, nil)
	var ready struct {
		HTTP string `json:"http"`
		NATS string `json:"nats"`
	}
	for line := range strings.SplitSeq(log.String(), "\n") {
		if strings.Contains(line, "enricher: ready") {
			check.OK(t, json.Unmarshal([]byte(line), &ready))
		}
	}
	check.That(t, strings.HasPrefix(ready.HTTP, "http://127.0.0.1:") && ready.NATS != "",
		"the log does not say where the service is:\n%s", log)
}

// TestMissingAssets names the streams and buckets that an administrator has to make.
func TestMissingAssets(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	cfg := config()
	cfg.CreateAssets = false
	_, err := Start(t.Context(), nc, cfg)
	check.Require(t, err != nil, "started without streams")
	for _, name := range []string{"ENRICH_JOBS", "KV_enrich", "KV_jobs", "KV_requests"} {
		check.That(t, strings.Contains(err.Error(), "stream "+name+" is missing"), "the error does not name %s:\n%v", name, err)
	}
}

// TestDrift is logged and not mended.
func TestDrift(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv)
	begin(t, nc, config())
	stream := check.Must(js.Stream(t.Context(), "KV_requests"))(t)
	changed := stream.CachedInfo().Config
	changed.MaxBytes = 12345678
	check.OK(t, check.Err(js.UpdateStream(t.Context(), changed)))
	log := &buffer{}
	cfg := config()
	cfg.CreateAssets, cfg.Logger = false, slog.New(slog.NewTextHandler(log, nil))
	other, _ := natstest.Connect(t, srv)
	begin(t, other, cfg)
	check.Says(t, log.String(), "max_bytes", "KV_requests")
}

// TestListenFails: a service that cannot listen, or has no file of its keys, leaves nothing running.
func TestListenFails(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	cfg := config()
	cfg.Listen = "nowhere:http:1"
	check.Contains(t, check.Err(Start(t.Context(), nc, cfg)), cfg.Listen)
	cfg = config()
	cfg.Keys = "missing.json"
	check.Contains(t, check.Err(Start(t.Context(), nc, cfg)), cfg.Keys)
}

// TestProbes: alive all the time; ready while there is a connection, a store and a worker.
func TestProbes(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, _ := natstest.Connect(t, srv)
	cfg := config()
	cfg.Version = "1.2.3"
	e := begin(t, nc, cfg)
	if _, err := e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}); err != nil {
		t.Fatal(err) // and after it the worker works
	}
	if status, body := get(t, e.URL()+"/readyz?verbose"); status != 200 || body != "[+]nats ok\n[+]store ok\n[+]streams ok\n[+]worker ok\n" {
		t.Errorf("readyz is %d %q", status, body)
	}
	if status, body := get(t, e.URL()+"/version"); status != 200 || body != "1.2.3\n" {
		t.Errorf("version is %d %q", status, body)
	}
	srv.Stop()
	status, body := get(t, e.URL()+"/readyz")
	for !strings.Contains(body, "[-]nats failed: connection is ") { // the connection learns it in a moment
		status, body = get(t, e.URL()+"/readyz")
	}
	check.That(t, status == 503 && strings.Contains(body, "[-]store failed: "), "without a server readyz is %d %q", status, body)
	status, _ = get(t, e.URL()+"/livez")
	check.That(t, status == 200, "without a server livez is %d", status)
}

// TestInProcess uses the service as a program that embeds it does.
func TestInProcess(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	cfg := config()
	cfg.Listen, cfg.NoDeprecatedField = "-", true
	e := begin(t, nc, cfg)
	check.Same(t, "URL without HTTP", e.URL(), "")
	check.Is(t, check.Err(e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{{}}})), contracts.ErrInvalid)
	req := contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant("A"), restaurant("Nowhere")}, WaitMS: 30_000}
	resp, err := e.Enrich(t.Context(), req)
	check.That(t, err == nil && resp.Pending == 0 && resp.Results[0].Field("wolt") == nil, "answer is %+v, %v", resp, err)
	results, err := e.Results(t.Context(), "wolt", req)
	check.That(t, err == nil && results["id-A"].Outcome == contracts.OutcomeFound && results["id-Nowhere"].Outcome == contracts.OutcomeNotFound,
		"results are %+v, %v", results, err)
	s := e.Stats()
	check.That(t, s.Requests == 1 && s.Jobs == 2, "stats are %+v", s)
	check.Is(t, e.Stop(), nil)
}

// administer makes the streams, the buckets and the consumer in the service's account, as an administrator does.
func administer(t *testing.T, srv *natsrun.Server, users *natstest.Users) jetstream.JetStream {
	t.Helper()
	nc, _ := natstest.Connect(t, srv, users.As("admin"))
	js := natstest.InAccount(t, nc, "ENRICHER")
	ours := contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{contracts.ServiceEnricher}}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(ours), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(ours), contracts.ApplyOptions{})))
	return js
}

// TestLeastPrivilege runs the whole service as the user that production gives it, with streams, buckets and the consumer
// made by an administrator: hits, misses, dead letters, event streams and micro, without one permission too few.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	admin := administer(t, srv, users)
	may := natstest.NewPermissions(t, srv, "enricher")
	nc, _ := natstest.Connect(t, srv, users.As("enricher"), may.Through(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("the server refuses: %v", err) }))
	cfg := config()
	cfg.CreateAssets = false
	e := begin(t, nc, cfg)

	results := []contracts.Restaurant{restaurant("A"), restaurant("Nowhere"), restaurant("Trouble")}
	for range 2 {
		resp, err := e.Enrich(t.Context(), contracts.EnrichRequest{RequestID: "r", Results: results, WaitMS: 60_000})
		check.Require(t, err == nil && resp.Pending == 0, "%d pending, %v", resp.Pending, err)
	}
	status, body := get(t, e.URL()+"/v1/requests/r/events")
	check.That(t, status == 200 && strings.Contains(body, "event: complete"), "events are %d %q", status, body)
	status, body = get(t, e.URL()+"/v1/requests/unknown")
	check.That(t, status == 404, "an unknown request is %d %q", status, body)
	status, body = get(t, e.URL()+"/readyz")
	check.That(t, status == 200, "readyz is %d %q", status, body)
	asker, _ := natstest.Connect(t, srv, users.As("publisher"))
	msg, err := asker.Request("enricher.v1.get", []byte(`{"requestId":"r"}`), patience)
	check.That(t, err == nil && bytes.Contains(msg.Data, []byte(`"snapshot"`)), "a source system gets %+v, %v", msg, err)
	check.Is(t, e.Stop(), nil)
	may.CheckNeeded(t,
		"$JS.ACK.*.*.ENRICH_JOBS.>",                                        // acknowledgements with the server's feature js_ack_fc_v2
		"$JS.API.STREAM.MSG.GET.ENRICH_JOBS",                               // a lost acknowledgement
		"$JS.API.STREAM.MSG.GET.KV_jobs", "$KV.jobs.excused.ENRICH_JOBS.>", // an attempt that does not count
		"$JS.API.DIRECT.GET.KV_jobs",      // a job that takes long
		"$KV.jobs.progress.ENRICH_JOBS.>", // a job that takes long
		"$KV.jobs.limits.>",               // a provider with limits
	)
	stream, err := admin.Stream(t.Context(), contracts.StreamDead)
	check.That(t, err == nil && stream.CachedInfo().State.Msgs == 1, "dead letters: %v, want one", err)
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"ENABLE_WOLT_ENRICHMENT": "true", "ENRICHER_ACK_WAIT": "7s", "ENRICHER_CONCURRENCY": "3", "ENRICHER_ORIGINS": "https://a.example.com,http://localhost:3000",
		"ENRICHER_CATALOG": "venues.csv", "NATS_URL": "nats://nats:4222", "ENRICHER_LISTEN": "-", "PATH": "/bin", "NATS_OTHER": "x",
	}, io.Discard, &cfg)
	check.OK(t, err)
	cfg.Logger = nil
	want := Config{
		BaseConfig: service.BaseConfig{
			AckWait: 7 * time.Second, Concurrency: 3, Listen: "-", NATSConfig: service.NATSConfig{NATSURL: "nats://nats:4222"},
			Origins: []string{"https://a.example.com", "http://localhost:3000"},
		},
		Catalog: "venues.csv", Enabled: true,
	}
	check.Equal(t, want, cfg, cmpopts.IgnoreUnexported(service.BaseConfig{}))
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	check.That(t, cfg.Logger != nil && !cfg.Enabled && !cfg.CreateAssets && !cfg.NoDeprecatedField, "defaults are %+v", cfg)
	cfg.Logger = nil
	want := Config{BaseConfig: service.BaseConfig{
		AckWait: 5 * time.Second, Concurrency: 32, Listen: ":8080", NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:4222"}, Replicas: 1, Version: "0.0.0-dev",
	}, ProviderName: "wolt"}
	check.Equal(t, want, cfg, cmpopts.IgnoreUnexported(service.BaseConfig{}))
}

func TestValidateReportsEverything(t *testing.T) {
	t.Parallel()
	cfg := Config{
		BaseConfig: service.BaseConfig{AckWait: time.Millisecond, Concurrency: -1, MaxBytes: -1, Origins: []string{"[", "example.com"}, Replicas: 9},
		Catalog:    "a", ClaimTTL: time.Millisecond, FoundTTL: -time.Second, NotFoundTTL: 1500 * time.Millisecond,
		ProviderURL: "https://x",
	}
	err := cfg.withDefaults().validate()
	check.Require(t, err != nil, "nothing is reported")
	for _, want := range []string{
		"AckWait", "ClaimTTL", "Concurrency", "FoundTTL", "MaxBytes", "NotFoundTTL", `"["`, `"example.com"`, "Replicas", "both set",
	} {
		check.That(t, strings.Contains(err.Error(), want), "the error does not name %s:\n%v", want, err)
	}
	check.Contains(t, (Config{}).withDefaults().validate(), "ENRICHER_CATALOG")
	check.Failsf(t, (Config{Providers: []provider.Provider{named("a b")}}).withDefaults().validate(),
		"a provider's name that is no token was taken")
	check.Failsf(t, (Config{Providers: []provider.Provider{named("a"), named("a")}}).withDefaults().validate(),
		"two providers of one name were taken")
}

// TestProviders opens the configured providers, and names those that cannot be opened.
func TestProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Catalog: "nowhere.csv"}, "nowhere.csv"},
		{Config{ProviderURL: "ftp://x"}, "ENRICHER_PROVIDER_URL"},
	} {
		_, err := c.cfg.providers()
		check.That(t, err != nil && strings.Contains(err.Error(), c.want), "%+v: %v, want an error that names %s", c.cfg, err, c.want)
	}
	venues := filepath.Join(t.TempDir(), "venues.json")
	check.OK(t, os.WriteFile(venues, []byte(`[{"id":"1","name":"A"}]`), 0o600))
	for want, cfg := range map[string]Config{
		"wolt":  {ProviderURL: "https://venues.test"},
		"other": {ProviderName: "other", ProviderURL: "https://venues.test"},
		"third": {Catalog: venues, ProviderName: "third"},
	} {
		list, err := cfg.withDefaults().providers()
		check.That(t, err == nil && len(list) == 1 && list[0].Name() == want, "providers are %v, %v; want %s", list, err, want)
	}
	check.Contains(t, Config{Catalog: venues, ProviderKey: "k", ProviderName: "a b"}.withDefaults().validate(), "ENRICHER_PROVIDER_NAME", "ENRICHER_PROVIDER_KEY")
}
