// Package servicetest tests the routes of services.
package servicetest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
)

// Foreign is a request about something of the user "theirs".
type Foreign struct{ Body, Query string }

// Callers makes a request of each route for each kind of caller, and reports every answer that contradicts the route's need. The routes
// need no working parts: a handler that panics counts as reached. A caller that is bound to the user "mine" names "theirs" in each path,
// and in the route's request in foreign. The routes in elsewhere are excepted from that.
func Callers(t *testing.T, add func(*service.Router), foreign map[string]Foreign, elsewhere ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	secrets := map[string]string{"none": "", "unknown": access.Prefix + "unknown"}
	issue := func(name, user string, expires time.Time, scopes ...access.Scope) {
		var err error
		if secrets[name], err = access.Add(path, access.Key{Name: name, User: user, Expires: expires, Scopes: scopes}); err != nil {
			t.Fatal(err)
		}
	}
	issue("expired", "", time.Now().Add(-time.Second), access.Scopes()...)
	issue("bound", "mine", time.Time{}, access.Scopes()...)
	for _, s := range access.Scopes() {
		issue(string(s), "", time.Time{}, s)
	}
	router := newRouter(t, path, false, add)
	for pattern, need := range router.Needs() {
		for caller, secret := range secrets {
			if caller == "bound" && slices.Contains(elsewhere, pattern) {
				continue
			}
			status := ask(t.Context(), router, pattern, secret, foreign[pattern])
			if want := expected(need, caller); !slices.Contains(want, status) {
				t.Errorf("%s (scope %q) answers %d to the caller %q, want one of %d", pattern, need.Scope(), status, caller, want)
			}
		}
	}
}

// newRouter returns a router with routes for the callers in a file of keys. With admin those of operators are on their own router.
func newRouter(t *testing.T, path string, admin bool, add func(*service.Router)) *service.Router {
	t.Helper()
	keys, err := access.Open("shop", path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	router := service.NewRouter(service.RouterConfig{
		Access: access.NewGuard(keys, nil), Admin: admin, Logger: slog.New(slog.DiscardHandler), Name: "shop",
		Ready: func() map[string]error { return nil },
	})
	add(router)
	return router
}

// reached is the status of a handler that was reached.
const reached = http.StatusOK

// expected returns the statuses that a caller may get.
func expected(need access.Need, caller string) []int {
	switch {
	case need.IsPublic():
		return []int{reached}
	case caller == "none", caller == "unknown", caller == "expired":
		return []int{http.StatusUnauthorized}
	case caller == "bound" && need.IsOwn():
		return []int{http.StatusForbidden, http.StatusNotFound}
	case caller == string(need.Scope()):
		return []int{reached}
	}
	return []int{http.StatusForbidden}
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// ask makes one request. Every answer of a handler but 403 and 404 counts as reached.
func ask(ctx context.Context, router http.Handler, pattern, secret string, f Foreign) (status int) {
	method, path, _ := strings.Cut(pattern, " ")
	r := httptest.NewRequestWithContext(ctx, method, wildcard.ReplaceAllString(path, "theirs")+f.Query, strings.NewReader(f.Body))
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			status = reached
		}
	}()
	router.ServeHTTP(w, r)
	switch w.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return w.Code
	}
	return reached
}

// Refused checks that a caller with only the scope of a route may not send a body.
func Refused(t *testing.T, add func(*service.Router), pattern, body string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	secret, err := access.Add(path, access.Key{Name: "publisher", Scopes: []access.Scope{access.Publish}})
	if err != nil {
		t.Fatal(err)
	}
	if status := ask(t.Context(), newRouter(t, path, false, add), pattern, secret, Foreign{Body: body}); status != http.StatusForbidden {
		t.Errorf("%s answers %d, want 403", pattern, status)
	}
}

// probes are the routes of every service that are for operators.
var probes = []string{"GET /livez", "GET /readyz", "GET /version"}

// Listeners requests each route on the listener of the API and on that of operators, and reports every route that is on both, on neither,
// or on the wrong one. admin are the service's own routes for operators; no further routes may be on their listener.
func Listeners(t *testing.T, add func(*service.Router), admin ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := access.Add(path, access.Key{Name: "reader", Scopes: []access.Scope{access.Read}}); err != nil {
		t.Fatal(err)
	}
	one, api := newRouter(t, path, false, add), newRouter(t, path, true, add)
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

// has reports whether a router has a route: a request without a key is answered, or refused with 401.
func has(ctx context.Context, router http.Handler, pattern string) bool {
	method, path, _ := strings.Cut(pattern, " ")
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, wildcard.ReplaceAllString(path, "theirs"), http.NoBody))
	return w.Code == http.StatusOK || w.Code == http.StatusUnauthorized
}

// Answers sends a body to each endpoint of a service over NATS, by name and in order, and reports an endpoint without a body and every
// refusal.
func Answers(t *testing.T, nc *nats.Conn, endpoints []service.Endpoint, bodies [][2]string) {
	t.Helper()
	subjects, asked := map[string]string{}, map[string]bool{}
	for _, e := range endpoints {
		subjects[e.Name] = e.Subject
	}
	for _, b := range bodies {
		answer, err := nc.RequestWithContext(t.Context(), subjects[b[0]], []byte(b[1]))
		if err != nil || answer.Header.Get(micro.ErrorCodeHeader) != "" {
			t.Errorf("%s with %s is answered %+v, %v", b[0], b[1], answer, err)
		}
		asked[b[0]] = true
	}
	for _, b := range bodies {
		for _, body := range withOdd(b[1]) {
			answer, err := nc.RequestWithContext(t.Context(), subjects[b[0]], []byte(body))
			if err != nil {
				t.Fatalf("%s with %s: %v", b[0], body, err)
			}
			status, _ := strconv.Atoi(answer.Header.Get(micro.ErrorCodeHeader)) // 0 for a good answer
			tolerable(t, b[0], body, status, string(answer.Data))
		}
	}
	if len(asked) < len(subjects) {
		t.Errorf("of %v only %v were asked", subjects, asked)
	}
}

// Pipes is a listener whose connections stay in the process and have no buffers: they work under fake time, and a write waits until the
// other end reads it. Make it with [NewPipes].
type Pipes struct {
	closed chan struct{}
	conns  chan net.Conn
	once   sync.Once
}

// NewPipes returns a listener.
func NewPipes() *Pipes { return &Pipes{closed: make(chan struct{}), conns: make(chan net.Conn)} }

// Accept implements [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements [net.Listener]. It is a loopback address.
func (*Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Close implements [net.Listener].
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// DialContext returns a connection to the listener, whatever the address. It is for a [net/http.Transport].
func (p *Pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
