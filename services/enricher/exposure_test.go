package enricher

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestAServiceWithoutKeysStaysOnItsMachine(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc := check.Must(srv.Connect())(t)
	t.Cleanup(nc.Close)
	cfg := config()
	cfg.Listen = ":0"
	if e, err := Start(t.Context(), nc, cfg); err == nil || !strings.Contains(err.Error(), "ENRICHER_KEYS") {
		if err == nil {
			err = e.Stop()
		}
		t.Errorf("it starts without keys: %v", err)
	}
	cfg.Insecure = true
	status, text := get(t, begin(t, nc, cfg).URL()+"/v1/requests/x")
	check.That(t, status == http.StatusNotFound, "insecure: %d %s", status, text)
	cfg.Keys = filepath.Join(t.TempDir(), "keys.json")
	check.OK(t, check.Err(access.Add(cfg.Keys, access.Key{Name: "a", Scopes: []access.Scope{access.Read}})))
	check.Contains(t, check.Err(Start(t.Context(), nc, cfg)), "ENRICHER_INSECURE")
	cfg.Insecure = false
	status, text = get(t, begin(t, nc, cfg).URL()+"/v1/requests/x")
	check.That(t, status == http.StatusUnauthorized, "with keys: %d %s", status, text)
	// An issuer that is down is no reason not to start; the callers with a key go on.
	cfg.Keys, cfg.OIDCAudience, cfg.OIDCIssuer = "", "enricher", "http://127.0.0.1:1"
	status, text = get(t, begin(t, nc, cfg).URL()+"/v1/requests/x")
	check.That(t, status == http.StatusUnauthorized, "with an issuer: %d %s", status, text)
	issuer, token := issuer(t)
	cfg.OIDCIssuer, cfg.OIDCScopeClaim = issuer, "roles"
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, begin(t, nc, cfg).URL()+"/v1/requests/42:x", http.NoBody))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	check.OK(t, err)
	resp.Body.Close()
	check.That(t, resp.StatusCode == http.StatusNotFound, "with a token: %s %s", resp.Status, resp.Header.Get("WWW-Authenticate"))
	cfg.Keys = "missing.json"
	check.Contains(t, check.Err(Start(t.Context(), nc, cfg)), "missing.json")
}

// issuer starts an identity provider, and returns its address and a token of the user 42 with the scope read.
func issuer(t *testing.T) (address, token string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check.OK(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	answer("/.well-known/openid-configuration", fmt.Sprintf(`{"issuer": %q, "jwks_uri": %q}`, server.URL, server.URL+"/keys"))
	answer("/keys", `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "`+encode(public)+`"}]}`)
	signed := encode([]byte(`{"alg": "EdDSA", "kid": "1"}`)) + "." + encode(fmt.Appendf(nil,
		`{"iss": %q, "aud": "enricher", "sub": "42", "roles": ["read"], "exp": %d}`, server.URL, time.Now().Add(time.Hour).Unix()))
	return server.URL, signed + "." + encode(ed25519.Sign(private, []byte(signed)))
}

// slow is a provider that answers when it is released.
type slow struct {
	named

	released chan struct{}
}

func (s slow) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	select {
	case <-s.released:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.named.Search(ctx, place)
}

// Each of the seven log events of a request is in the log at the level debug, and those of a normal hit or miss are not in
// the log otherwise.
func TestLogEvents(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{
		"":      "enqueue_skipped job_enqueued lock_acquired lock_failed",
		"debug": "cache_hit cache_miss enqueue_skipped job_enqueued lock_acquired lock_failed lock_skipped",
	} {
		t.Run("level "+level, func(t *testing.T) {
			t.Parallel()
			log := eventsLogged(t, level)
			var seen []string
			for _, event := range []string{
				"cache_hit", "cache_miss", "enqueue_skipped", "job_enqueued", "lock_acquired", "lock_failed", "lock_skipped",
			} {
				if strings.Contains(log, `"event":"wolt_`+event+`"`) {
					seen = append(seen, event)
				}
			}
			got := strings.Join(seen, " ")
			check.That(t, got == want, "the log has %s, want %s:\n%s", got, want, log)
		})
	}
}

// eventsLogged returns the log of an enricher in which every event happens.
func eventsLogged(t *testing.T, level string) string {
	t.Helper()
	log, far := &buffer{}, slow{named: "wolt", released: make(chan struct{})}
	cfg := config()
	check.OK(t, service.Read(name, map[string]string{"ENRICHER_LOG_LEVEL": level}, log, &cfg))
	cfg.Providers = []provider.Provider{far}
	nc, js := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	ask := func(place string, waitMS int) {
		t.Helper()
		check.OK(t, check.Err(e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant(place)}, WaitMS: waitMS})))
	}
	ask("A", 0) // a miss: the place is claimed, its job is queued
	ask("A", 0) // the place is claimed already
	close(far.released)
	ask("A", 30_000)
	ask("A", 0) // a hit
	stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketEnrich))(t)
	sealed := stream.CachedInfo().Config
	sealed.Sealed = true
	check.OK(t, check.Err(js.UpdateStream(t.Context(), sealed)))
	ask("B", 0) // no place can be claimed
	check.Is(t, e.Stop(), nil)
	return log.String()
}
