package service_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

func TestPagesOfOthersAreKeptOff(t *testing.T) {
	t.Parallel()
	router := service.NewRouter(service.RouterConfig{Hosts: []string{"*.example.com"}, Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	answer := func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	router.Handle("POST /v1/orders", access.All(access.Publish), answer)
	router.Handle("POST /v1/unsubscribe", access.Public(), answer)
	for _, c := range []struct {
		name, host, path string
		header           map[string]string
		want             int
	}{
		{"a program", "127.0.0.1:8080", "/v1/orders", nil, 204},
		{"a program, IPv6", "[::1]:8080", "/v1/orders", nil, 204},
		{"a program, IPv6 without a port", "[::1]", "/v1/orders", nil, 204},
		{"a program by HTTP 1.0", "", "/v1/orders", nil, 204},
		{"localhost", "LocalHost:8080", "/v1/orders", nil, 204},
		{"a configured host", "Shop.example.com.", "/v1/orders", nil, 204},
		{"a host that leads here", "evil.test:8080", "/v1/orders", nil, 421},
		{"a host that begins like an address", "127.0.0.1.evil.test", "/v1/orders", nil, 421},
		{"a host that ends like localhost", "evil.localhost.test", "/v1/orders", nil, 421},
		{"its own page", "127.0.0.1:8080", "/v1/orders", map[string]string{"Origin": "http://127.0.0.1:8080"}, 204},
		{"a page of another origin", "127.0.0.1:8080", "/v1/orders", map[string]string{"Origin": "http://evil.test"}, 403},
		{"a page of another port", "127.0.0.1:8080", "/v1/orders", map[string]string{"Origin": "http://127.0.0.1:9"}, 403},
		{"a page without an origin", "127.0.0.1:8080", "/v1/orders", map[string]string{"Origin": "null"}, 403},
		{"a form of another site", "127.0.0.1:8080", "/v1/orders", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a signed link in a mail", "127.0.0.1:8080", "/v1/unsubscribe", map[string]string{"Origin": "null"}, 204},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, http.NoBody)
		r.Host = c.host
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if w.Code != c.want || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s gets %d %v, want %d", c.name, w.Code, w.Header(), c.want)
		}
	}
}
