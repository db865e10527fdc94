// Package servicetest tests the routes of services.
package servicetest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// Foreign is a request about something of the user "theirs".
type Foreign struct{ Body, Query string }

// Callers makes a request of each route for each kind of caller, and reports every one that is answered against the route's
// need. The routes may stand on nothing: a handler that panics has been reached. A caller that is bound to the user "mine" names
// "theirs" in each path, and in what foreign has for a route; routes in elsewhere are left out of that.
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
	keys, err := access.Open("shop", path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	router := service.NewRouter(service.RouterConfig{
		Access: access.NewGuard(keys, nil), Logger: slog.New(slog.DiscardHandler), Name: "shop",
		Ready: func() map[string]error { return nil },
	})
	add(router)
	for pattern, need := range router.Needs() {
		for caller, secret := range secrets {
			if caller == "bound" && slices.Contains(elsewhere, pattern) {
				continue
			}
			status := ask(t.Context(), router, pattern, secret, foreign[pattern])
			if want := expected(need, caller); !slices.Contains(want, status) {
				t.Errorf("%s (%s) answers %d to the caller %q, want one of %d", pattern, need, status, caller, want)
			}
		}
	}
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

// ask makes one request. Every answer of a handler but 403 and 404 is that it was reached.
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

// Refused checks that a caller with the scope of a route, and no other one, may not send a body.
func Refused(t *testing.T, add func(*service.Router), pattern, body string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	secret, err := access.Add(path, access.Key{Name: "publisher", Scopes: []access.Scope{access.Publish}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := access.Open("shop", path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	router := service.NewRouter(service.RouterConfig{Access: access.NewGuard(keys, nil), Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	add(router)
	if status := ask(t.Context(), router, pattern, secret, Foreign{Body: body}); status != http.StatusForbidden {
		t.Errorf("%s answers %d, want 403", pattern, status)
	}
}
