// Package console_test tries the console over a server.
package console_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// place is the store of a server, and the public keys of its users.
type place struct {
	Dir   string
	Users map[string]string
}

// deployedServer is a server with the accounts of deploy/nats, in a process of its own: one whose disk is full may lock itself.
var deployedServer = crash.Role[place]{Name: "deployed server", Run: func(ctx context.Context, at place) error {
	srv, err := natsrun.Start(natsrun.Config{Dir: at.Dir, Listen: true, ReadyTimeout: crash.Patience, Users: at.Users})
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Println(srv.URL()) //nolint:forbidigo // to the test
	<-ctx.Done()
	return nil
}}

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	deployedServer.Main()
	goleak.VerifyTestMain(m)
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := console.New(console.Config{Prefix: "x/", Accounts: []console.Account{{}, {}}})
	check.Contains(t, err, "Audit", "Conn", "Logger", "Prefix", "no JetStream", "twice")
	_, err = console.New(console.Config{Logger: slog.New(slog.DiscardHandler), ReadOnly: true})
	check.Contains(t, err, "Accounts", "Conn")
	check.That(t, !strings.Contains(err.Error(), "Audit"), "%v", err)
}

func TestPagesUnderAPrefix(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t, func(c *console.Config) { c.Prefix = "/ops/console" })
	h, body := s.Do(http.MethodGet, "/", nil, http.StatusOK)
	check.Says(t, body, `href="/ops/console/"`, `src="/ops/console/static/htmx.min.js?v=`, "ENRICH_JOBS", "<html")
	check.Says(t, h.Get("Content-Security-Policy"), "default-src 'self'")
	fragment := s.Get("/", http.StatusOK, "Hx-Request", "true")
	check.That(t, !strings.Contains(fragment, "<html") && strings.Contains(fragment, "ENRICH_JOBS"), "not the main part: %s", fragment)
	h, _ = s.Do(http.MethodGet, "", nil, http.StatusMovedPermanently)
	check.Same(t, "location", h.Get("Location"), "/ops/console/")
	check.Says(t, s.Get("/none", http.StatusNotFound), "There is no page")
	h, _ = s.Do(http.MethodGet, "/static/style.css", nil, http.StatusOK)
	check.Says(t, h.Get("Content-Type"), "text/css")
}

// A page of another host that leads to this machine reads nothing.
func TestAnotherHostIsRefused(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", http.NoBody))(t)
	r.Host = "evil.example"
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	check.OK(t, err)
	check.OK(t, answer.Body.Close())
	check.Same(t, "status", answer.StatusCode, http.StatusMisdirectedRequest)
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	html := []string{"Accept", "text/html"}
	h, _ := s.Do(http.MethodGet, "/?a=b", nil, http.StatusSeeOther, html...)
	check.Same(t, "location", h.Get("Location"), "/sign-in?to="+url.QueryEscape("/?a=b"))
	s.Get("/", http.StatusUnauthorized)
	s.Get("/live?topic=tick", http.StatusUnauthorized)

	_, body := s.Post("/sign-in", url.Values{"key": {"exp_wrong"}}, http.StatusUnauthorized)
	check.Says(t, body, "not in force")
	s.Post("/sign-in", url.Values{"key": {secrets["bound"]}}, http.StatusForbidden)
	for to, want := range map[string]string{"/?a=b": "/?a=b", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/"} {
		h, _ := s.Do(http.MethodPost, "/sign-in", url.Values{"key": {secrets["viewer"]}, "to": {to}}, http.StatusSeeOther)
		check.Same(t, "where "+to+" leads", h.Get("Location"), want)
		check.Says(t, h.Get("Set-Cookie"), "HttpOnly", "SameSite=Strict")
	}
	h, _ = s.Do(http.MethodPost, "/sign-in", url.Values{"key": {secrets["viewer"]}}, http.StatusSeeOther)
	cookie, _, _ := strings.Cut(h.Get("Set-Cookie"), ";")
	check.Says(t, s.Get("/", http.StatusOK, "Cookie", cookie), "viewer", "Sign out")

	live := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/live?topic=tick", http.NoBody))(t)
	live.Header.Set("Cookie", cookie)
	stream, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(live)
	check.OK(t, err)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	check.That(t, lines.Scan() && strings.HasPrefix(lines.Text(), "retry:"), "got %q", lines.Text())

	s.Post("/sign-out", url.Values{}, http.StatusSeeOther, "Cookie", cookie)
	s.Get("/", http.StatusUnauthorized, "Cookie", cookie)
	for lines.Scan() { // ends with the session
	}
	check.OK(t, lines.Err())
}
