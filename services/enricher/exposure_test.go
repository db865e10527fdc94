package enricher

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/service/access"
)

func TestAServiceWithoutKeysStaysOnItsMachine(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
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
	if status, text := get(t, begin(t, nc, cfg).URL()+"/v1/requests/x"); status != http.StatusNotFound {
		t.Errorf("insecure: %d %s", status, text)
	}
	cfg.Keys = filepath.Join(t.TempDir(), "keys.json")
	if _, err := access.Add(cfg.Keys, access.Key{Name: "a", Scopes: []access.Scope{access.Read}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), nc, cfg); err == nil || !strings.Contains(err.Error(), "ENRICHER_INSECURE") {
		t.Errorf("it starts with keys that nobody needs: %v", err)
	}
	cfg.Insecure = false
	if status, text := get(t, begin(t, nc, cfg).URL()+"/v1/requests/x"); status != http.StatusUnauthorized {
		t.Errorf("with keys: %d %s", status, text)
	}
	// An issuer that is down is no reason not to start; the callers with a key go on.
	cfg.Keys, cfg.OIDCAudience, cfg.OIDCIssuer = "", "enricher", "http://127.0.0.1:1"
	if status, text := get(t, begin(t, nc, cfg).URL()+"/v1/requests/x"); status != http.StatusUnauthorized {
		t.Errorf("with an issuer: %d %s", status, text)
	}
	cfg.Keys = "missing.json"
	if _, err := Start(t.Context(), nc, cfg); err == nil || !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("it starts without the file of keys: %v", err)
	}
}
