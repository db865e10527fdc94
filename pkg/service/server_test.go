package service_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

var errSold = errors.New("it is sold")

// shop is a running server with some routes.
type shop struct {
	client *http.Client
	group  *service.Group
	server *service.Server
}

func mapped(err error) service.Problem {
	if errors.Is(err, errSold) {
		return service.Problem{Status: http.StatusConflict, Code: "SOLD"}
	}
	return service.Problem{}
}

// open serves until the test ends, with the routes that route adds.
func open(t *testing.T, cfg service.RouterConfig, route func(*service.Router)) *shop {
	t.Helper()
	server := check.Must(service.Listen(t.Context(), "shop", "127.0.0.1:0"))(t)
	cfg.Logger, cfg.Name, cfg.Errors, cfg.Version = slog.New(slog.DiscardHandler), "shop", mapped, "1.2.3"
	if cfg.Ready == nil {
		cfg.Ready = func() map[string]error { return nil }
	}
	router := service.NewRouter(cfg)
	if route != nil {
		route(router)
	}
	s := &shop{client: &http.Client{Transport: &http.Transport{}}, group: service.NewGroup(t.Context()), server: server}
	server.Serve(s.group, service.ServerConfig{Handler: router, Name: "shop"})
	t.Cleanup(func() {
		check.Is(t, errors.Join(server.Stop(), s.group.Stop()), nil)
		s.client.CloseIdleConnections()
	})
	return s
}

// reply is an answer without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

func (s *shop) call(t *testing.T, method, path, body string, secret ...string) (reply, string) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), method, s.server.URL()+path, strings.NewReader(body)))(t)
	for _, key := range secret {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := s.client.Do(r)
	check.OK(t, err)
	defer resp.Body.Close()
	text := check.Must(io.ReadAll(resp.Body))(t)
	return reply{resp.StatusCode, resp.Header}, string(text)
}

// Each error is one problem, with no more than the client may know.
func TestProblems(t *testing.T) {
	t.Parallel()
	failures := map[string]error{
		"sold":     fmt.Errorf("item 7: %w", errSold),
		"invalid":  &contracts.ValidationError{Type: "Order", Fields: []contracts.FieldError{{Path: "/n", Problem: "is required"}}},
		"slow":     fmt.Errorf("read: %w", context.DeadlineExceeded),
		"stopping": fmt.Errorf("read: %w", service.ErrStopping),
		"secret":   errors.New("password is hunter2"),
	}
	s := open(t, service.RouterConfig{}, func(r *service.Router) {
		r.Handle("POST /v1/{failure}", access.Public(), func(w http.ResponseWriter, r *http.Request) error {
			if _, err := service.Body(w, r, 2<<10); err != nil {
				return err
			}
			return failures[r.PathValue("failure")]
		})
	})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               service.Problem
	}{
		{"POST", "/v1/sold", "", 409, service.Problem{Code: "SOLD", Detail: "item 7: it is sold"}},
		{"POST", "/v1/invalid", "", 400, service.Problem{Detail: "contracts: invalid Order: /n is required"}},
		{"POST", "/v1/slow", "", 503, service.Problem{Code: "STORE_UNAVAILABLE", Detail: "the store does not answer, ask again"}},
		{"POST", "/v1/stopping", "", 503, service.Problem{Detail: "the service is stopping"}},
		{"POST", "/v1/secret", "", 500, service.Problem{Detail: "see the service's log"}},
		{"POST", "/v1/large", strings.Repeat("x", 2<<10+1), 413, service.Problem{Detail: "the body is over the limit of 2 KiB"}},
		{"GET", "/v1/sold", "", 405, service.Problem{Detail: `not a method of this resource: "GET", want one of POST`}},
		{"GET", "/v2", "", 404, service.Problem{Detail: `there is no such resource: "/v2"`}},
	} {
		resp, text := s.call(t, c.method, c.path, c.body)
		var p service.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if resp.StatusCode != c.status || p.Status != c.status || p.Title != http.StatusText(c.status) || p.Type != "about:blank" ||
			p.Detail != c.want.Detail || p.Code != c.want.Code || (len(p.Errors) == 1) != (c.path == "/v1/invalid") ||
			resp.Header.Get("Content-Type") != "application/problem+json" ||
			(resp.Header.Get("Retry-After") != "") != (c.status == 503) || (resp.Header.Get("Allow") != "") != (c.status == 405) {
			t.Errorf("%s %s is %d %v %s", c.method, c.path, resp.StatusCode, resp.Header, text)
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "shop"}))(t)
	good := open(t, service.RouterConfig{Exports: exports}, nil)
	bad := open(t, service.RouterConfig{Ready: func() map[string]error {
		return map[string]error{"b": errSold, "a": nil}
	}}, nil)
	for _, c := range []struct {
		shop   *shop
		path   string
		status int
		want   string
	}{
		{good, "/livez", 200, "ok\n"},
		{good, "/readyz", 200, "ok\n"},
		{good, "/version", 200, "1.2.3\n"},
		{good, "/metrics", 200, "go_goroutines"},
		{bad, "/livez", 200, "ok\n"},
		{bad, "/readyz", 503, "[+]a ok\n[-]b failed: it is sold\n"},
		{bad, "/metrics", 404, "no such resource"},
	} {
		if resp, text := c.shop.call(t, http.MethodGet, c.path, ""); resp.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s is %d %s", c.path, resp.StatusCode, text)
		}
	}
}

// The checks of readiness name streams and addresses: they are for callers that read, and are not bound to a user.
func TestDetailsOfReadinessAreForOperators(t *testing.T) {
	t.Parallel()
	path, secrets := filepath.Join(t.TempDir(), "keys.json"), map[string]string{"": ""}
	for name, key := range map[string]access.Key{
		"reader": {Scopes: []access.Scope{access.Read}}, "user": {Scopes: access.Scopes(), User: "7"}, "marker": {Scopes: []access.Scope{access.Mark}},
	} {
		key.Name = name
		secret := check.Must(access.Add(path, key))(t)
		secrets[name] = secret
	}
	keys := check.Must(access.Open("shop", path, slog.New(slog.DiscardHandler)))(t)
	s := open(t, service.RouterConfig{Access: access.NewGuard(keys, nil), Ready: func() map[string]error { return map[string]error{"a": errSold} }}, nil)
	for caller, secret := range secrets {
		resp, text := s.call(t, http.MethodGet, "/readyz?verbose", "", secret)
		check.That(t, resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(text, "sold") == (caller == "reader"),
			"%q is answered %d %s", caller, resp.StatusCode, text)
	}
}

// The messages of net/http are lines of the service's log, not of the standard error.
func TestServerLogsWhatGoesWrong(t *testing.T) {
	t.Parallel()
	server := check.Must(service.Listen(t.Context(), "shop", "127.0.0.1:0"))(t)
	var log bytes.Buffer // read when the server has stopped
	group := service.NewGroup(t.Context())
	server.Serve(group, service.ServerConfig{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("out of stock") }),
		Logger:  slog.New(slog.NewJSONHandler(&log, nil)), Name: "shop",
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Get(server.URL()); err == nil {
		resp.Body.Close()
		t.Errorf("a handler that panics answers %d", resp.StatusCode)
	}
	check.Is(t, errors.Join(server.Stop(), group.Stop()), nil)
	var line struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Level != "ERROR" || !strings.Contains(line.Msg, "out of stock") {
		t.Errorf("it logs %q: %v", &log, err)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	none, err := service.Listen(t.Context(), "shop", service.None)
	check.That(t, err == nil && none == nil && none.URL() == "" && none.Stop() == nil, "%v, %v", none, err)
	none.Serve(service.NewGroup(t.Context()), service.ServerConfig{})
	taken, err := service.Listen(t.Context(), "shop", ":0")
	check.Require(t, err == nil && strings.HasPrefix(taken.URL(), "http://127.0.0.1:"), "%v, %v", taken, err)
	if _, err := service.Listen(t.Context(), "shop", strings.TrimPrefix(taken.URL(), "http://127.0.0.1")); err == nil || !strings.Contains(err.Error(), "shop: listen on") {
		t.Errorf("got %v", err)
	}
	if err := taken.Stop(); err != nil { // without ever having served
		t.Error(err)
	}
}

// An open stream says what happened, that it is alive, and ends when the server does.
func TestStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	s := open(t, service.RouterConfig{}, func(r *service.Router) {
		r.Handle("GET /events", access.Public(), func(w http.ResponseWriter, r *http.Request) error {
			asked <- service.LastEventID(r)
			stream, err := service.OpenStream(w, r, service.Retry)
			for n := 0; err == nil; n++ {
				if _, err = service.Wait(r.Context(), time.Millisecond, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}); !errors.Is(err, service.ErrIdle) {
					break
				}
				if err = stream.Heartbeat(); err == nil && n == 0 {
					err = stream.Event("7", "status", map[string]int{"n": 1})
				}
			}
			return nil
		})
	})
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL()+"/events?last_event_id=6", http.NoBody))(t)
	resp, err := s.client.Do(r)
	check.OK(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if lines.Text() == `data: {"n":1}` {
			break
		}
	}
	if id := <-asked; id != "6" || text.String() != "retry: 2000\n\n: heartbeat\n\nid: 7\nevent: status\ndata: {\"n\":1}\n" {
		t.Errorf("asked with %q: %q", id, text.String())
	}
	if err := s.server.Stop(); err != nil { // does not wait for the stream, and cuts nothing off
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream is cut off: %v", err)
	}
}

// A connection on which nothing was asked, as browsers open them ahead of use, is no request under way.
func TestUnusedConnectionDoesNotDelayTheStop(t *testing.T) {
	t.Parallel()
	s := open(t, service.RouterConfig{}, func(r *service.Router) {
		r.Handle("GET /", access.Public(), func(http.ResponseWriter, *http.Request) error { return nil })
	})
	conn := check.Must(new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.server.URL(), "http://")))(t)
	defer conn.Close()
	s.call(t, http.MethodGet, "/", "") // so the connection before it was accepted
	check.Is(t, s.server.Stop(), nil)
}

// A goroutine that ends by itself ends the group, and its error is reported.
func TestGroup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	group := service.NewGroup(ctx)
	cancel() // the context that starts a group may end long before it
	broken := make(chan struct{})
	group.Go(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	group.Go(func(ctx context.Context) error {
		<-broken
		return errors.Join(errSold, ctx.Err())
	})
	select {
	case <-group.Ended():
		t.Error("it is over before anything has ended")
	default:
	}
	close(broken)
	<-group.Ended()
	if err := group.Stop(); !errors.Is(err, errSold) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPathEscape(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"a": "a", ".": "%2E", "..": "%2E%2E", "a/b": "a%2Fb", "...": "...", "שלום": "%D7%A9%D7%9C%D7%95%D7%9D"} {
		check.Same(t, id, service.PathEscape(id), want)
	}
}

// slow is a body of n parts, each of which takes a second.
type slow int

func (s *slow) Read(p []byte) (int, error) {
	*s--
	if *s < 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	return copy(p, "x"), nil
}

// A request whose answer takes too long is answered with a problem that programs understand, and the time that its client needs
// to send it does not count.
func TestAnAnswerThatTakesTooLongIsAProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
		router.Handle("POST /slow", access.Public(), func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return errors.Join(err, r.Context().Err())
		})
		body := slow(25)
		answer, begun := httptest.NewRecorder(), time.Now()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/slow", &body)
		router.ServeHTTP(answer, r)
		check.Same(t, "time until the answer", time.Since(begun), 40*time.Second)
		if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" ||
			!strings.Contains(answer.Body.String(), `"code":"STORE_UNAVAILABLE"`) {
			t.Errorf("the answer is %d %v %s", answer.Code, answer.Header(), answer.Body)
		}
	})
}

// A store without an answer is the same problem, by whichever error a client of it says so.
func TestAStoreThatDoesNotAnswerIsOneProblem(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, jetstream.ErrNoStreamResponse} {
		if p := service.ErrorMapper(nil).Of(err); p.Status != http.StatusServiceUnavailable || p.Code != "STORE_UNAVAILABLE" {
			t.Errorf("%v is %+v", err, p)
		}
	}
}
