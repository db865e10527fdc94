// Package consoletest serves a console for a test, and shows pages in Chromium, as people see them.
package consoletest

import (
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Site is a console over a server that has the streams and buckets of all services.
type Site struct {
	*testing.T

	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Server    *natsrun.Server

	// URL is the address of the console, without a slash at its end.
	URL string

	console *console.Console
	users   *natstest.Users // of a server with accounts
}

// As connects a user.
func (s *Site) As(user string) (*nats.Conn, jetstream.JetStream) {
	s.Helper()
	if s.users == nil {
		return natstest.Connect(s.T, s.Server)
	}
	return natstest.Connect(s.T, s.Server, s.users.As(user))
}

// Deployed is Start on a server with the accounts of deploy/nats, as a user. Conn is the administrator's connection, and
// JetStream the administrator's context in the account of the importer. may counts the permissions that the console uses.
func Deployed(t *testing.T, user string, mutate ...func(*console.Config)) (s *Site, may *natstest.Permissions) {
	t.Helper()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	admin, own := natstest.Connect(t, srv, users.As("admin"))
	may = natstest.NewPermissions(t, srv, user)
	nc, js := natstest.Connect(t, srv, users.As(user), may.Through())
	accounts := []console.Account{}
	assets := func(js jetstream.JetStream, service string) {
		of := contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{service}}
		check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(of), provision.Options{})))
		check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(of), provision.Options{})))
	}
	for _, service := range []string{contracts.ServiceEnricher, contracts.ServiceImporter, contracts.ServiceNotifier} {
		account := strings.ToUpper(service)
		assets(natstest.InAccount(t, admin, account), service)
		accounts = append(accounts, console.Account{JetStream: natstest.InAccount(t, nc, account), Name: account})
	}
	assets(own, contracts.ServiceLock)
	all := func(cfg *console.Config) { cfg.Accounts = append(accounts, cfg.Accounts...) }
	s = Serve(t, srv, nc, js, append([]func(*console.Config){all}, mutate...)...)
	s.Conn, s.JetStream, s.users = admin, natstest.InAccount(t, admin, "IMPORTER"), users
	return s, may
}

// Start serves a console until the test ends. It requires no keys, unless mutate changes that.
func Start(t *testing.T, mutate ...func(*console.Config)) *Site {
	t.Helper()
	srv := natstest.Server(t)
	nc, js := provisioned(t, srv)
	return Serve(t, srv, nc, js, mutate...)
}

// Within is Start on the server of a bubble. Only Do and what calls it reach the console.
func Within(t *testing.T, srv *natsrun.Server) *Site {
	t.Helper()
	nc, js := provisioned(t, srv)
	s := site(t, srv, nc, js)
	t.Cleanup(natstest.Background(t, s.console.Run))
	return s
}

// provisioned connects to a server, and makes the streams and buckets of all services.
func provisioned(t *testing.T, srv *natsrun.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, js := natstest.Connect(t, srv)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, assets, provision.Options{})))
	return nc, js
}

// Serve is Start over a given server.
func Serve(t *testing.T, srv *natsrun.Server, nc *nats.Conn, js jetstream.JetStream, mutate ...func(*console.Config)) *Site {
	t.Helper()
	s := site(t, srv, nc, js, mutate...)
	web := httptest.NewServer(s.console)
	t.Cleanup(web.Close)
	t.Cleanup(natstest.Background(t, s.console.Run)) // its end ends the streams, before the server waits for them
	s.URL = web.URL + s.URL
	return s
}

// site returns a site whose console neither runs nor is served. Its URL is only a path.
func site(t *testing.T, srv *natsrun.Server, nc *nats.Conn, js jetstream.JetStream, mutate ...func(*console.Config)) *Site {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	cfg := console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}), Conn: nc,
		Logger: logger,
	}
	for _, m := range mutate {
		m(&cfg)
	}
	return &Site{T: t, Conn: nc, JetStream: js, Server: srv, URL: cfg.Prefix, console: check.Must(console.New(cfg))(t)}
}

// Keys makes a file of keys with a viewer, an operator and a key that is bound to a user. It returns their secrets.
func Keys(t *testing.T) (guard *access.Guard, secrets map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	secrets = map[string]string{}
	for _, key := range []access.Key{
		{Name: "viewer", Scopes: []access.Scope{access.Read}},
		{Name: "operator", Scopes: []access.Scope{access.Operate, access.Read}},
		{Name: "other", Scopes: []access.Scope{access.Read}},
		{Name: "bound", Scopes: []access.Scope{access.Operate, access.Read}, User: "ada"},
	} {
		secret, err := access.Add(file, key)
		check.OK(t, err)
		secrets[key.Name] = secret
	}
	keys, err := access.Open("console", file, slog.New(slog.DiscardHandler))
	check.OK(t, err)
	return access.NewGuard(keys, nil), secrets
}

// Get reads a page, and returns its text. The status has to be the given one.
func (s *Site) Get(path string, status int, header ...string) string {
	s.Helper()
	_, body := s.Do(http.MethodGet, path, nil, status, header...)
	return body
}

// Post sends a form, and returns the address to which the answer redirects, and its text. The status has to be the given one.
func (s *Site) Post(path string, form url.Values, status int, header ...string) (to, body string) {
	s.Helper()
	h, body := s.Do(http.MethodPost, path, form, status, header...)
	return h.Get("Location"), body
}

// Again posts what is typed wrongly, and returns the page of the form, which the reader gets again with its filter and the mistake.
func (s *Site) Again(path string, form url.Values, from string) string {
	s.Helper()
	to, _ := s.Post(path, form, http.StatusSeeOther, "Referer", s.URL+from)
	again, err := url.Parse(to)
	check.OK(s.T, err)
	query := again.Query()
	query.Del("note")
	want, err := url.Parse(s.URL + from)
	check.OK(s.T, err)
	check.That(s.T, again.Path == want.Path && query.Encode() == want.Query().Encode(), "it leads to %s, want %s", to, from)
	page := s.Get(to, http.StatusOK)
	check.Contains(s.T, page, `<p class="note bad" role="alert">You typed`)
	return page
}

var (
	fieldOf = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	formOf  = regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>`)
)

// Form returns the hidden fields of the first form of a page that leads to an action, with more: names and values by turns.
func (s *Site) Form(page, action string, more ...string) url.Values {
	s.Helper()
	for _, f := range formOf.FindAllStringSubmatch(page, -1) {
		if !strings.HasSuffix(f[1], action) {
			continue
		}
		values := url.Values{}
		for _, field := range fieldOf.FindAllStringSubmatch(f[2], -1) {
			values.Add(html.UnescapeString(field[1]), html.UnescapeString(field[2]))
		}
		for i := 0; i < len(more); i += 2 {
			values.Set(more[i], more[i+1])
		}
		return values
	}
	s.Fatalf("the page has no form for %s: %s", action, page)
	return nil
}

// Do makes a request with the header fields: names and values by turns. It follows no redirect.
func (s *Site) Do(method, path string, form url.Values, status int, header ...string) (http.Header, string) {
	s.Helper()
	at := s.URL + path
	if strings.HasPrefix(at, "/") {
		at = "http://127.0.0.1" + at
	}
	r := httptest.NewRequestWithContext(s.Context(), method, at, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	s.console.ServeHTTP(answer, r)
	body := answer.Body.String()
	if answer.Code != status {
		s.Errorf("%s %s answers %d, want %d: %.2000s", method, path, answer.Code, status, body)
	}
	return answer.Header(), body
}
