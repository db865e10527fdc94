package service_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// counter is a router with quotas, whose routes answer when they are told.
type counter struct {
	*testing.T

	answer  chan struct{}
	length  int64 // that requests say their bodies have
	router  *service.Router
	waiting sync.WaitGroup
}

func newCounter(t *testing.T, limits service.LimitConfig, guard *access.Guard) *counter {
	t.Helper()
	c := &counter{T: t, answer: make(chan struct{})}
	c.router = service.NewRouter(service.RouterConfig{
		Access: guard, Limits: limits, Logger: slog.New(slog.DiscardHandler), Name: "shop",
	})
	wait := func(http.ResponseWriter, *http.Request) error {
		<-c.answer
		return nil
	}
	c.router.Handle("GET /now", access.All(access.Read), func(http.ResponseWriter, *http.Request) error { return nil })
	c.router.Handle("GET /page", access.Public(), wait)
	c.router.Handle("GET /slow", access.All(access.Read), wait)
	c.router.HandleStream("GET /stream", access.All(access.Read), wait)
	c.router.HandleSocket("GET /socket", access.All(access.Read), wait)
	return c
}

// ask returns "200", or the status, the code of the problem and Retry-After.
func (c *counter) ask(path, from, key string) string { return c.do(http.MethodGet, path, from, key) }

func (c *counter) do(method, path, from, key string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, http.NoBody)
	r.ContentLength, r.Host, r.RemoteAddr = c.length, "localhost", from
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	c.router.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		return "200"
	}
	var p service.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		c.Error(err)
	}
	return fmt.Sprintf("%d %s after %s", w.Code, p.Code, w.Header().Get("Retry-After"))
}

// want asks, and compares.
func (c *counter) want(path, from, key, want string) {
	c.Helper()
	if got := c.ask(path, from, key); got != want {
		c.Errorf("%s of %s %.20s: got %s, want %s", path, from, key, got, want)
	}
}

// hold begins a request that goes on until answers are told.
func (c *counter) hold(path, from string, key ...string) {
	c.waiting.Go(func() { c.want(path, from, strings.Join(key, ""), "200") })
	synctest.Wait()
}

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only

const (
	ada, bob    = "192.0.2.1:1", "192.0.2.2:1"
	overRate    = "429 QUOTA_RATE after 1"
	overReqs    = "429 QUOTA_REQUESTS after 2"
	overStreams = "429 QUOTA_STREAMS after 2"
)

// A caller gets its quotas and no more, whatever the others do. A stream is no request under way.
func TestQuotas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Rate: 4, Requests: 2, Streams: 1}, nil)
		for range 4 {
			c.want("/now", ada, "", "200")
		}
		c.want("/now", ada, "", overRate)
		c.want("/now", "192.0.2.1:2", "", overRate) // another connection of the same
		c.want("/now", bob, "", "200")
		elapse(250 * time.Millisecond)
		c.want("/now", ada, "", "200")
		c.want("/now", ada, "", overRate)
		elapse(time.Second)
		c.hold("/slow", ada)
		c.hold("/slow", ada)
		c.want("/now", ada, "", overReqs)
		c.want("/now", bob, "", "200")
		elapse(time.Second)
		c.hold("/stream", ada)
		c.want("/stream", ada, "", overStreams)
		c.want("/socket", ada, "", overStreams)
		c.hold("/stream", bob)
		close(c.answer)
		c.waiting.Wait()
		elapse(time.Second)
		for _, path := range []string{"/slow", "/stream", "/now"} {
			c.want(path, ada, "", "200")
		}
	})
}

// A caller with a key is known by it, wherever it comes from; one without, by its address. Refused requests count.
func TestQuotasKnowTheCaller(t *testing.T) {
	t.Parallel()
	file, secrets := filepath.Join(t.TempDir(), "keys.json"), []string{"", ""}
	for i, name := range []string{"ada", "bob"} {
		secrets[i] = check.Must(access.Add(file, access.Key{Name: name, Scopes: []access.Scope{access.Read}}))(t)
	}
	keys := check.Must(access.Open("shop", file, slog.New(slog.DiscardHandler)))(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Rate: 1}, access.NewGuard(keys, nil))
		c.want("/now", ada, secrets[0], "200")
		c.want("/now", bob, secrets[0], overRate)
		c.want("/now", ada, secrets[1], "200")
		for _, from := range []string{ada, "[2001:db8::1]:1"} {
			c.want("/now", from, "", "401  after ")
			c.want("/now", from, "", overRate)
		}
		c.want("/now", "[2001:db8::2]:1", "", overRate) // the same network
		c.want("/now", "[2001:db8:0:1::1]:1", "", "401  after ")
	})
}

// However many callers take all the streams and requests that they get, one more gets in.
func TestCallersLeaveRoom(t *testing.T) {
	t.Parallel()
	for path, refused := range map[string]string{"/stream": overStreams, "/slow": overReqs} {
		synctest.Test(t, func(t *testing.T) {
			c := newCounter(t, service.LimitConfig{Connections: 64, Requests: 100, Streams: 100}, nil)
			for n, most := range []int{16, 8, 4, 2, 1} { // of 32 streams
				if path == "/slow" {
					most = []int{28, 14, 7, 4, 2}[n] // of 56 requests
				}
				from := fmt.Sprintf("192.0.2.%d:1", n)
				for range most {
					c.hold(path, from)
				}
				c.want(path, from, "", refused)
			}
			c.hold(path, "192.0.2.9:1")
			close(c.answer)
			c.waiting.Wait()
		})
	}
}

// A caller that is bound to a user changes something so often in an hour, and then once whenever there is room. It reads all the same. Others
// have no such bound.
func TestAUserChangesLittle(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	user := check.Must(access.Add(file, access.Key{Name: "ada", User: "7", Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	app := check.Must(access.Add(file, access.Key{Name: "app", Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	keys := check.Must(access.Open("shop", file, slog.New(slog.DiscardHandler)))(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Rate: 1000, Writes: 60}, access.NewGuard(keys, nil))
		for _, path := range []string{"/orders", "/settings"} {
			c.router.Handle("POST "+path, access.Own(access.Publish), func(http.ResponseWriter, *http.Request) error { return nil })
			c.router.Handle("GET "+path, access.Own(access.Read), func(http.ResponseWriter, *http.Request) error { return nil })
		}
		post := func(times int, from, key string) (got map[string]int) {
			got = map[string]int{}
			for n := range times {
				got[c.do(http.MethodPost, []string{"/orders", "/settings"}[n%2], from, key)]++
			}
			return got
		}
		const over = "429 QUOTA_WRITES after 60"
		check.Equal(t, map[string]int{"200": 60, over: 40}, post(100, ada, user))
		for n := range 5000 { // strangers, who have nobody forgotten
			c.want("/orders", fmt.Sprintf("10.0.%d.%d:1", n>>8, n&0xff), "", "401  after ")
		}
		check.Equal(t, map[string]int{over: 10}, post(10, bob, user))
		check.Equal(t, map[string]int{"200": 100}, post(100, ada, app))
		c.want("/orders", ada, user, "200")
		elapse(2 * time.Minute)
		check.Equal(t, map[string]int{"200": 2, over: 8}, post(10, ada, user))
		elapse(time.Hour)
		c.length = 1 << 20
		check.Equal(t, map[string]int{"200": 12}, post(12, ada, user))
		check.Equal(t, map[string]int{"429 QUOTA_WRITES after 300": 1}, post(1, ada, user))
		elapse(time.Hour)
		c.length = -1 // of a body that does not say
		check.Equal(t, map[string]int{"200": 1}, post(1, ada, user))
		check.Equal(t, map[string]int{"429 QUOTA_WRITES after 240": 1}, post(1, ada, user))
	})
}

// Strangers with as many addresses as they like leave half of the requests to callers with a key, and one of these as much to the strangers.
func TestStrangersLeaveRoom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	secret := check.Must(access.Add(file, access.Key{Name: "ada", Scopes: []access.Scope{access.Read}}))(t)
	keys := check.Must(access.Open("shop", file, slog.New(slog.DiscardHandler)))(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Connections: 64, Requests: 100}, access.NewGuard(keys, nil))
		address := func(n int) string { return fmt.Sprintf("[2001:db8:0:%x::1]:1", n) }
		for n := range 28 { // of 56 requests
			c.hold("/page", address(n))
		}
		for n := range 100 {
			c.want("/page", address(n), "", overReqs)
		}
		for range 14 {
			c.hold("/slow", address(1), secret)
		}
		c.want("/slow", ada, secret, overReqs)
		close(c.answer)
		c.waiting.Wait()
		c.want("/page", address(1), "", "200")
	})
}

// The service remembers 4096 callers, and each that has a request under way.
func TestCallersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Rate: 1, Requests: 1}, nil)
		others := func(n int) {
			for i := range n {
				c.want("/now", fmt.Sprintf("10.%d.%d.%d:1", n>>8, i>>8, i&0xff), "", "200")
			}
		}
		c.hold("/slow", bob)
		c.want("/now", ada, "", "200")
		others(4095)
		c.want("/now", ada, "", overRate)
		others(4096)
		c.want("/now", ada, "", "200") // as if it had never asked
		c.want("/now", bob, "", overRate)
		elapse(time.Second)
		c.want("/now", bob, "", overReqs)
		close(c.answer)
		c.waiting.Wait()
	})
}

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
		check.That(t, w.Code == c.want && w.Header().Get("Cache-Control") == "no-store" && w.Header().Get("X-Content-Type-Options") == "nosniff",
			"%s gets %d %v, want %d", c.name, w.Code, w.Header(), c.want)
	}
}

// A page of a trusted origin has the permissions of its caller; a preflight asks for no key. Others get no header of CORS.
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
			check.That(t, n != 7 || w.Code == http.StatusTooManyRequests, "preflights have no bound: %d", w.Code)
		}
	})
}
