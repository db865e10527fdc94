package servicetest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// probes are the routes of every service that are for operators.
var probes = []string{"GET /livez", "GET /readyz", "GET /version"}

// Listeners asks for each route on the listener of the API and on that of operators, and reports every one that is on both, on
// neither, or on the wrong one: admin are the service's own routes for operators, and nothing else is on their listener.
func Listeners(t *testing.T, add func(*service.Router), admin ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := access.Add(path, access.Key{Name: "reader", Scopes: []access.Scope{access.Read}}); err != nil {
		t.Fatal(err)
	}
	keys, err := access.Open("shop", path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg := service.RouterConfig{
		Access: access.NewGuard(keys, nil), Logger: slog.New(slog.DiscardHandler), Name: "shop",
		Ready: func() map[string]error { return nil },
	}
	one := service.NewRouter(cfg)
	add(one)
	cfg.Admin = true
	api := service.NewRouter(cfg)
	add(api)
	admin = slices.Concat(admin, probes)
	for pattern := range one.Needs() {
		want := slices.Contains(admin, pattern)
		admin = slices.DeleteFunc(admin, func(p string) bool { return p == pattern })
		for name, here := range map[string]bool{"API": !want, "operators": want} {
			router := api
			if name == "operators" {
				router = api.Admin()
			}
			if has(t.Context(), router, pattern) != here {
				t.Errorf("%s on the listener of the %s: got %t, want %t", pattern, name, !here, here)
			}
		}
	}
	if len(admin) > 0 {
		t.Errorf("there are no %s", admin)
	}
}

// has reports whether a router has a route: without a key, a request is answered or 401.
func has(ctx context.Context, router http.Handler, pattern string) bool {
	method, path, _ := strings.Cut(pattern, " ")
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, wildcard.ReplaceAllString(path, "theirs"), http.NoBody))
	return w.Code == http.StatusOK || w.Code == http.StatusUnauthorized
}
