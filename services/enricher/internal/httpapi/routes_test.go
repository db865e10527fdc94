package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
)

// TestRoutesThatAreNot: what has no route is answered as other errors are, and says what would be allowed.
func TestRoutesThatAreNot(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{http.MethodGet, "/", 404, ""},
		{http.MethodGet, "/v1", 404, ""},
		{http.MethodPost, "/v1/enrich/", 404, ""},
		{http.MethodPost, "/v2/enrich", 404, ""},
		{http.MethodGet, "/v1/requests/", 404, ""},
		{http.MethodGet, "/v1/requests/r/events/x", 404, ""},
		{http.MethodGet, "/" + strings.Repeat("x", 10<<10), 404, ""},
		{http.MethodGet, "/%22%0d%0aX:%20y", 404, ""},
		{http.MethodGet, "/v1/enrich", 405, "POST"},
		{http.MethodDelete, "/v1/enrich", 405, "POST"},
		{http.MethodPost, "/v1/requests/r", 405, "GET, HEAD"},
		{http.MethodPut, "/v1/requests/r/events", 405, "GET, HEAD"},
		{http.MethodPost, "/v1/requests/r/ws", 405, "GET, HEAD"},
		{http.MethodPost, "/readyz", 405, "GET, HEAD"},
		{"BREW", "/version", 405, "GET, HEAD"},
	} {
		p, header := i.problem(t, c.method, c.path, "")
		check.That(t, p.Status == c.status && header.Get("Allow") == c.allow,
			"%s %.40s is %d with Allow %q, want %d with %q", c.method, c.path, p.Status, header.Get("Allow"), c.status, c.allow)
		check.That(t, p.Detail != "" && len(p.Detail) <= 1024 && strings.Contains(p.Detail, c.allow),
			"%s %.40s: detail is %.200q", c.method, c.path, p.Detail)
	}
	status, header, data := i.do(t, http.MethodHead, "/nothing", "", nil)
	check.That(t, status == 404 && len(data) == 0 && header.Get("Content-Type") == "application/problem+json",
		"HEAD is %d %v %q", status, header, data)
}

// TestPathsThatAreNotClean are redirected, as the standard library does it.
func TestPathsThatAreNotClean(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{})
	for _, path := range []string{"//livez", "/v1/../livez", "/./livez"} {
		status, _, data := i.do(t, http.MethodGet, path, "", nil)
		check.That(t, status == http.StatusOK && string(data) == "ok\n", "%s is %d %q, want to be led to /livez", path, status, data)
	}
	p, _ := i.problem(t, http.MethodGet, "//nothing", "")
	check.That(t, p.Status == http.StatusNotFound, "a path that leads to nothing is %d", p.Status)
}

// TestAnswersEndALine: a shell's prompt comes on a line of its own.
func TestAnswersEndALine(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/v1/enrich", `{"requestId":"r","results":[{"placeId":"a","name":"A"}]}`, 200},
		{http.MethodPost, "/v1/enrich", `{"results":[]}`, 200},
		{http.MethodPost, "/v1/enrich", `?`, 400},
		{http.MethodGet, "/v1/requests/r", "", 200},
		{http.MethodGet, "/v1/requests/nobody", "", 404},
		{http.MethodGet, "/nothing", "", 404},
	} {
		status, _, data := i.do(t, c.method, c.path, c.body, nil)
		if text := string(data); status != c.status || !strings.HasSuffix(text, "}\n") || strings.Count(text, "\n") != 1 {
			t.Errorf("%s %s with %q is %d %q, want one line", c.method, c.path, c.body, status, text)
		}
	}
}

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	servicetest.Callers(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) }, map[string]servicetest.Foreign{
		"POST /v1/enrich": {Body: `{"requestId":"theirs:1","results":[]}`},
	})
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) })
}
