package service_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A page of a trusted origin reads and changes what its caller may; a preflight asks for no key. Others get no header of CORS.
func TestPagesOfTrustedOrigins(t *testing.T) {
	t.Parallel()
	const trusted, methods = "https://app.example.com", "GET, POST, PATCH, DELETE"
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{address: "https://id.example.com", key: issuerKey()}
		router := service.NewRouter(service.RouterConfig{
			Access: i.guard(t, i), Limits: service.LimitConfig{Rate: 7}, Logger: slog.New(slog.DiscardHandler), Name: "shop", Origins: []string{trusted},
		})
		router.Handle("POST /orders", access.Own(access.Publish), func(http.ResponseWriter, *http.Request) error { return nil })
		synctest.Wait()
		bearer := "Bearer " + i.token(t, "42", "publish", time.Now().Add(time.Hour))
		for _, c := range []struct {
			name, method, path, origin, asks, key string
			status                                int
			allowed, methods                      string
		}{
			{"a preflight", "OPTIONS", "/orders", trusted, "POST", "", 204, trusted, methods},
			{"a preflight of another origin", "OPTIONS", "/orders", "https://evil.test", "POST", "", 405, "", ""},
			{"a preflight of another scheme", "OPTIONS", "/orders", "http://app.example.com", "POST", "", 405, "", ""},
			{"a preflight of no origin", "OPTIONS", "/orders", "null", "POST", "", 405, "", ""},
			{"no preflight", "OPTIONS", "/orders", trusted, "", "", 405, trusted, ""},
			{"a change", "POST", "/orders", trusted, "", bearer, 200, trusted, ""},
			{"a change without a key", "POST", "/orders", trusted, "", "", 401, trusted, ""},
			{"a change of another origin", "POST", "/orders", "https://evil.test", "", bearer, 403, "", ""},
			{"a program", "POST", "/orders", "", "", bearer, 200, "", ""},
			{"no route", "GET", "/", trusted, "", "", 404, trusted, ""},
		} {
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody)
			for name, value := range map[string]string{"Origin": c.origin, "Access-Control-Request-Method": c.asks, "Authorization": c.key} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			router.ServeHTTP(w, r)
			h := w.Header()
			if w.Code != c.status || h.Get("Access-Control-Allow-Origin") != c.allowed || h.Get("Access-Control-Allow-Methods") != c.methods ||
				h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Credentials") != "" || (h.Get("Access-Control-Expose-Headers") != "") != (c.allowed != "") ||
				strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") != (c.methods != "") {
				t.Errorf("%s gets %d %v", c.name, w.Code, h)
			}
		}
		for n := range 8 { // of one address, which has asked already
			r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/orders", http.NoBody)
			r.Header.Set("Origin", trusted)
			r.Header.Set("Access-Control-Request-Method", "POST")
			w := httptest.NewRecorder()
			router.ServeHTTP(w, r)
			if n == 7 && w.Code != http.StatusTooManyRequests {
				t.Errorf("preflights have no bound: %d", w.Code)
			}
		}
	})
}
