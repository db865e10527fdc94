package enricher

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain.
const patience = 5 * time.Minute

// fakeProvider is a provider that finds every place, but those called Nowhere, and fails for those called Trouble.
type fakeProvider string

func (n fakeProvider) Name() string { return string(n) }

func (n fakeProvider) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
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
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), MaxBytes: 1 << 30},
		Enabled:    true, Providers: []provider.Provider{fakeProvider("wolt")},
	}
}

func begin(t *testing.T, nc *nats.Conn, cfg Config) *Enricher {
	t.Helper()
	e := check.Must(Start(t.Context(), nc, cfg))(t)
	t.Cleanup(func() { check.ErrorIs(t, e.Stop(), nil) })
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

// TestRun runs the service from its configuration, over TCP, asks it, and stops it.
func TestRun(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	cfg := config()
	cfg.NATSURL = srv.URL()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	client, _ := natstest.Connect(t, srv)
	var msg *nats.Msg
	for deadline := time.Now().Add(patience); ; { // the service says nothing when it is ready, but answers
		var err error
		if msg, err = client.Request("enricher.v1.enrich", []byte(`{"waitMs":30000,"results":[{"placeId":"a","name":"A Kitchen","address":"Harbour Road 1","cityText":"Haifa"}]}`), patience); err == nil {
			break
		}
		check.Require(t, errors.Is(err, nats.ErrNoResponders) && !time.Now().After(deadline), "%v", err)
	}
	check.Equal(t, check.Must(contracts.Decode[contracts.EnrichResponse](msg.Data))(t).Pending, 0, "pending")
	cancel()
	check.ErrorIs(t, <-done, nil)
}

// TestAssets: streams and buckets that are missing are named; those that an administrator has changed are logged and not changed back.
func TestAssets(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv)
	log := &buffer{}
	cfg := config()
	cfg.CreateAssets, cfg.Logger = false, slog.New(slog.NewTextHandler(log, nil))
	for _, name := range []string{"ENRICH_JOBS", "KV_enrich", "KV_jobs", "KV_requests"} {
		check.ErrorContains(t, check.Err(Start(t.Context(), nc, cfg)), "stream "+name+" is missing")
	}
	first := begin(t, nc, config())
	request := contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}
	check.OK(t, check.Err(first.Enrich(t.Context(), request))) // so its worker has made the consumer
	check.OK(t, first.Stop())
	changed := check.Must(js.Stream(t.Context(), "KV_requests"))(t).CachedInfo().Config
	changed.MaxBytes = 12345678
	check.OK(t, check.Err(js.UpdateStream(t.Context(), changed)))
	begin(t, nc, cfg)
	check.Contains(t, log.String(), "max_bytes", "KV_requests")
	check.Equal(t, check.Must(js.Stream(t.Context(), "KV_requests"))(t).CachedInfo().Config.MaxBytes, 12345678)
}

// TestListenFails: a service that cannot listen, or has no file of its keys, leaves nothing running.
func TestListenFails(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	cfg := config()
	cfg.Listen = "nowhere:http:1"
	check.ErrorContains(t, check.Err(Start(t.Context(), nc, cfg)), cfg.Listen)
	cfg = config()
	cfg.Keys = "missing.json"
	check.ErrorContains(t, check.Err(Start(t.Context(), nc, cfg)), cfg.Keys)
}

// TestProbes: ready while there is a connection, a store and a worker, and alive all the time.
func TestProbes(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, _ := natstest.Connect(t, srv)
	e := begin(t, nc, config())
	request := contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}
	check.OK(t, check.Err(e.Enrich(t.Context(), request))) // and after it the worker works
	status, body := get(t, e.URL()+"/readyz?verbose")
	check.Equal(t, fmt.Sprint(status, " ", body), "200 [+]nats ok\n[+]store ok\n[+]streams ok\n[+]worker ok\n")
	srv.Stop()
	for !strings.Contains(body, "[-]nats failed: connection is ") { // the connection learns it in a moment
		status, body = get(t, e.URL()+"/readyz")
	}
	check.That(t, status == 503 && strings.Contains(body, "[-]store failed: "), "without a server readyz is %d %q", status, body)
	status, _ = get(t, e.URL()+"/livez")
	check.Equal(t, status, 200, "livez without a server")
}

// TestInProcess uses the service as a program that embeds it does.
func TestInProcess(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	cfg := config()
	cfg.Listen, cfg.NoDeprecatedField = "-", true
	e := begin(t, nc, cfg)
	check.Equal(t, e.URL(), "", "URL without HTTP")
	check.ErrorIs(t, check.Err(e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{{}}})), contracts.ErrInvalid)
	req := contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant("A"), restaurant("Nowhere")}, WaitMS: 30_000}
	resp, err := e.Enrich(t.Context(), req)
	check.That(t, err == nil && resp.Pending == 0 && resp.Results[0].Field("wolt") == nil, "answer is %+v, %v", resp, err)
	results, err := e.Results(t.Context(), "wolt", req)
	check.That(t,
		err == nil && results["id-A"].Outcome == contracts.OutcomeFound && results["id-Nowhere"].Outcome == contracts.OutcomeNotFound,
		"results are %+v, %v", results, err)
	s := e.Stats()
	check.That(t, s.Requests == 1 && s.Jobs == 2, "stats are %+v", s)
	check.ErrorIs(t, e.Stop(), nil)
}

// TestLeastPrivilege runs the whole service as the user that production gives it, with streams, buckets and the consumer
// made by an administrator: hits, misses, dead letters, event streams and micro, without one permission too few.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	adminConn, _ := natstest.Connect(t, srv, users.As("admin"))
	admin := natstest.InAccount(t, adminConn, "ENRICHER")
	ours := contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{contracts.ServiceEnricher}}
	check.OK(t, check.Err(provision.Apply(t.Context(), admin, contracts.Assets(ours), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), admin, provision.Consumers(ours), provision.Options{})))
	permissions := natstest.NewPermissions(t, srv, "enricher")
	nc, _ := natstest.Connect(t, srv, users.As("enricher"), permissions.Through(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("the server refuses: %v", err) }))
	cfg := config()
	cfg.CreateAssets = false
	e := begin(t, nc, cfg)

	// A job that cannot be read: its place is left without an answer for a while.
	check.OK(t, check.Err(admin.Publish(t.Context(), "jobs.enrich.wolt.id-Unreadable", []byte("?"))))
	check.Until(t, time.Minute, "an entry of the place of the job that cannot be read", func() bool {
		return len(check.Must(e.service.Place(t.Context(), "id-Unreadable"))(t)) > 0
	})
	results := []contracts.Restaurant{restaurant("A"), restaurant("Nowhere"), restaurant("Trouble"), restaurant("Unreadable")}
	for range 2 {
		resp, err := e.Enrich(t.Context(), contracts.EnrichRequest{RequestID: "r", Results: results, WaitMS: 60_000})
		check.Require(t, err == nil && resp.Pending == 0, "%d pending, %v", resp.Pending, err)
		unreadable, _ := resp.Results[3].State("wolt")
		check.Equal(t, unreadable.Reason, "provider_error", "the place of the job that cannot be read")
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
	check.ErrorIs(t, e.Stop(), nil)
	permissions.CheckNeeded(t,
		"$JS.ACK.*.*.ENRICH_JOBS.>",                                        // acknowledgements with the server's feature js_ack_fc_v2
		"$JS.API.STREAM.MSG.GET.ENRICH_JOBS",                               // a lost acknowledgement
		"$JS.API.STREAM.MSG.GET.KV_jobs", "$KV.jobs.excused.ENRICH_JOBS.>", // an attempt that does not count
		"$JS.API.DIRECT.GET.KV_jobs",      // a job that takes long
		"$KV.jobs.progress.ENRICH_JOBS.>", // a job that takes long
		"$KV.jobs.limits.>",               // a provider with limits
	)
	stream, err := admin.Stream(t.Context(), contracts.StreamDead)
	check.That(t, err == nil && stream.CachedInfo().State.Msgs == 2, "dead letters: %v, want two", err)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	check.That(t, cfg.Logger != nil && !cfg.Enabled && !cfg.CreateAssets && !cfg.NoDeprecatedField, "defaults are %+v", cfg)
	cfg.Logger = nil
	want := Config{BaseConfig: service.BaseConfig{
		AckWait: 5 * time.Second, Concurrency: 32, Listen: ":8080", NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:4222"}, Replicas: 1, Version: "0.0.0-dev",
	}, ProviderName: "wolt"}
	check.Equal(t, cmp.Diff(want, cfg, cmpopts.IgnoreUnexported(service.BaseConfig{})), "")
}

func TestValidateReportsEverything(t *testing.T) {
	t.Parallel()
	cfg := Config{
		BaseConfig: service.BaseConfig{AckWait: time.Millisecond, Concurrency: -1, MaxBytes: -1, Origins: []string{"[", "example.com"}, Replicas: 9},
		Catalog:    "a", ClaimTTL: time.Millisecond, FoundTTL: -time.Second, MemoryBytes: -2, NotFoundTTL: 1500 * time.Millisecond,
		ProviderURL: "https://x",
	}
	check.ErrorContains(t, cfg.withDefaults().validate(), "AckWait", "ClaimTTL", "Concurrency", "FoundTTL", "MaxBytes", "MemoryBytes",
		"NotFoundTTL", `"["`, `"example.com"`, "Replicas", "both set")
	check.ErrorContains(t, (Config{}).withDefaults().validate(), "ENRICHER_CATALOG")
	check.That(t, (Config{Providers: []provider.Provider{fakeProvider("a b")}}).withDefaults().validate() != nil,
		"a provider's name that is no token was taken")
	check.That(t, (Config{Providers: []provider.Provider{fakeProvider("a"), fakeProvider("a")}}).withDefaults().validate() != nil,
		"two providers of one name were taken")
}

// TestProviders opens the configured providers, and names those that cannot be opened.
func TestProviders(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{"nowhere.csv": {Catalog: "nowhere.csv"}, "ENRICHER_PROVIDER_URL": {ProviderURL: "ftp://x"}} {
		check.ErrorContains(t, check.Err(cfg.providers()), want)
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
	limited, ok := check.Must(Config{ProviderRate: 4, ProviderURL: "https://venues.test"}.withDefaults().providers())(t)[0].(provider.Limited)
	check.That(t, ok && limited.Limits().Gap == time.Second/4, "the provider does not have the rate: %+v", limited)
	check.ErrorContains(t, Config{Catalog: venues, ProviderKey: "k", ProviderName: "a b"}.withDefaults().validate(),
		"ENRICHER_PROVIDER_NAME", "ENRICHER_PROVIDER_KEY")
}

// Where a store is full, a request is answered all the same: its place is pending. It is found when there is room.
func TestAPlaceIsPendingWhileAStoreIsFull(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketRequests, contracts.StreamEnrichJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			nc, js := natstest.Connect(t, natstest.Server(t))
			e := begin(t, nc, config())
			full := check.Must(js.Stream(t.Context(), stream))(t)
			for _, room := range []bool{false, true} {
				config := full.CachedInfo().Config
				request := contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}
				if !room {
					config.MaxBytes, request.WaitMS = 1, 0
				}
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				answer, err := e.Enrich(t.Context(), request)
				unrecorded := !room && stream == "KV_"+contracts.BucketRequests
				check.That(t, err == nil && room == (answer.Pending == 0) && (answer.Skipped == "store_full") == unrecorded,
					"room %t: %+v, %v", room, answer, err)
			}
		})
	}
}

// TestLongAnswers: the time that a client has to send its request does not end a stream of events, nor a request that
// waits.
func TestLongAnswers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		listener := servicetest.NewPipes()
		cfg := config()
		cfg.Listener = listener
		e := check.Must(prepare(cfg))(t)
		spec := e.spec()
		spec.Open = e.answer // without a worker: the place stays pending
		e.running = check.Must(service.Start(t.Context(), nc, spec))(t)
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		defer client.CloseIdleConnections()
		check.Equal(t, e.URL(), "http://127.0.0.1:80", "URL")
		began := time.Now()
		body := strings.NewReader(`{"requestId":"r","results":[{"placeId":"a","name":"A"}]}`)
		answer := check.Must(client.Post("http://localhost/v1/enrich?wait=55s", "application/json", body))(t)
		defer answer.Body.Close()
		took := time.Since(began)
		check.That(t, took >= 55*time.Second && took <= 56*time.Second, "answered after %s, want 55 s", took)
		resp := check.Must(client.Get("http://localhost/v1/requests/r/events"))(t)
		defer resp.Body.Close()
		ended := make(chan error, 1)
		go func() { ended <- check.Err(io.Copy(io.Discard, resp.Body)) }()
		natstest.Pass(10 * time.Minute)
		check.Equal(t, len(ended), 0, "streams that have ended")
		check.ErrorIs(t, e.Stop(), nil)
		<-ended
	})
}

// A request, its job and its entry are counted, and /metrics shows it under names that Prometheus accepts.
func TestMetrics(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "enricher", Version: "1.2.3"}))(t)
	cfg := config()
	cfg.Exports = exports
	nc, _ := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	req := contracts.EnrichRequest{
		Results: []contracts.Restaurant{restaurant("A"), restaurant("Nowhere")}, WaitMS: int(contracts.MaxWait.Milliseconds()),
	}
	resp, err := e.Enrich(t.Context(), req)
	check.Require(t, err == nil && resp.Pending == 0, "got %+v, %v", resp, err)
	check.OK(t, check.Err(nc.Request("enricher.v1.get", []byte(`{"requestId":"nobody"}`), patience)))
	check.OK(t, e.Stop()) // a job and a request are counted after their answers are out
	answer := httptest.NewRecorder()
	exports.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	text := answer.Body.String()
	check.Contains(t, text,
		`enricher_requests_total 1`, `enricher_places_total 2`, `enricher_lookups_total{outcome="FOUND"} 1`,
		`enricher_lookups_total{outcome="NOT_FOUND"} 1`,
		`worker_job_attempts_total{consumer="enricher",outcome="completed",pattern="jobs.enrich.>",stream="ENRICH_JOBS"} 2`,
		`worker_job_wait_seconds_count{consumer="enricher",pattern="jobs.enrich.>",stream="ENRICH_JOBS"} 2`,
		`kvlock_events_total{bucket="enrich",kind="released"}`, `worker_ready{consumer="enricher",stream="ENRICH_JOBS"} `,
		`rpc_server_call_duration_seconds_count{rpc_method="enricher.v1.get",rpc_response_status_code="404",rpc_system_name="nats"} 1`,
		`remote_call_duration_seconds_count{outcome="ok",remote="wolt"} 2`,
		`messaging_client_sent_messages_total{messaging_destination_name="ENRICH_JOBS",messaging_operation_name="send",messaging_system="nats"} 2`)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	check.That(t, err == nil && len(problems) == 0, "lint: %v, %v", problems, err)
}

// ask posts a request that has to be answered.
func ask(t *testing.T, base, body string, mutate func(*http.Request)) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/enrich", strings.NewReader(body)))(t)
	mutate(r)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp := check.Must(client.Do(r))(t)
	check.OK(t, resp.Body.Close())
	check.Require(t, resp.StatusCode == http.StatusOK, "status %d", resp.StatusCode)
}

// The trace of a request over HTTP or NATS leads to the look-up that it caused, in any process.
func TestTraceReachesTheJob(t *testing.T) {
	spans := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.ErrorIs(t, err, nil)
		spans <- string(body)
		w.WriteHeader(http.StatusOK)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "enricher"}))(t)
	cfg := config()
	cfg.Exports, cfg.Logger = exports, slog.New(slog.DiscardHandler)
	nc, _ := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	body := `{"waitMs":30000,"results":[{"placeId":"a","name":"A","address":"Harbour Road 1","cityText":"Haifa"}]}`
	ask(t, e.URL(), body, func(r *http.Request) {
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	})
	over := nats.NewMsg("enricher.v1.enrich") // NATS
	over.Header.Set("traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	over.Data = []byte(body)
	check.OK(t, check.Err(nc.RequestMsg(over, patience)))
	check.OK(t, e.Stop())
	check.OK(t, exports.Stop(t.Context()))
	close(spans)
	var all strings.Builder
	for s := range spans {
		all.WriteString(s)
	}
	caller := "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c" // the trace of the request, in OTLP's bytes
	check.Contains(t, all.String(), "POST /v1/enrich", "process jobs.enrich.>", caller, "enricher.v1.enrich", "\x1a"+caller[1:])
	n := strings.Count(all.String(), caller)
	check.That(t, n >= 2, "the trace of the caller is in %d places, want it in the request's span and in the job's link", n)
}

// A caller with a token of the issuer is known. An issuer that is down is no reason not to start.
func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check.OK(t, err)
	var published *httptest.Server
	published = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := fmt.Sprintf(`{"issuer": %q, "jwks_uri": %q}`, published.URL, published.URL+"/keys")
		if r.URL.Path == "/keys" {
			text = fmt.Sprintf(`{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public))
		}
		_, _ = w.Write([]byte(text)) // a caller may have gone
	}))
	t.Cleanup(published.Close)
	claims := fmt.Appendf(nil, `{"iss": %q, "aud": "enricher", "client_id": "app", "sub": "42", "roles": ["read"], "exp": %d}`,
		published.URL, time.Now().Add(time.Hour).Unix())
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg": "EdDSA", "kid": "1"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	token := signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(signed)))
	for issuer, want := range map[string]int{"http://127.0.0.1:1": http.StatusUnauthorized, published.URL: http.StatusNotFound} {
		cfg := config()
		cfg.Listen, cfg.OIDCAudience, cfg.OIDCIssuer, cfg.OIDCScopeClaim = ":0", "enricher", issuer, "roles"
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, begin(t, nc, cfg).URL()+"/v1/requests/42:x", http.NoBody))(t)
		r.Header.Set("Authorization", "Bearer "+token)
		resp := check.Must((&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r))(t)
		check.OK(t, resp.Body.Close())
		check.Equal(t, resp.StatusCode, want, issuer)
	}
}
