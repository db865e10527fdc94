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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var errTest = errors.New("it is sold")

// shop is a running server with some routes.
type shop struct {
	client *http.Client
	group  *service.Group
	server *service.Server
}

func mapped(err error) service.Problem {
	if errors.Is(err, errTest) {
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
		check.ErrorIs(t, errors.Join(server.Stop(), s.group.Stop()), nil)
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
		"sold":     fmt.Errorf("item 7: %w", errTest),
		"invalid":  &contracts.ValidationError{Type: "Order", Fields: []contracts.FieldError{{Path: "/n", Problem: "is required"}}},
		"slow":     fmt.Errorf("read: %w", context.DeadlineExceeded),
		"stopping": fmt.Errorf("read: %w", service.ErrStopping),
		"deaf":     jetstream.ErrNoStreamResponse,
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
		{"POST", "/v1/deaf", "", 503, service.Problem{Code: "STORE_UNAVAILABLE", Detail: "the store does not answer, ask again"}},
		{"POST", "/v1/stopping", "", 503, service.Problem{Detail: "the service is stopping"}},
		{"POST", "/v1/secret", "", 500, service.Problem{Detail: "see the service's log"}},
		{"POST", "/v1/large", strings.Repeat("x", 2<<10+1), 413, service.Problem{Detail: "the body is over the limit of 2 KiB"}},
		{"GET", "/v1/sold", "", 405, service.Problem{Detail: `not a method of this resource: "GET", want one of POST`}},
		{"GET", "/v2", "", 404, service.Problem{Detail: `there is no such resource: "/v2"`}},
	} {
		resp, text := s.call(t, c.method, c.path, c.body)
		var p service.Problem
		err := json.Unmarshal([]byte(text), &p)
		check.Require(t, err == nil, "%s: %v", text, err)
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
	bad := open(t, service.RouterConfig{Ready: func() map[string]error { return map[string]error{"b": errTest, "a": nil} }}, nil)
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
		resp, text := c.shop.call(t, http.MethodGet, c.path, "")
		check.That(t, resp.StatusCode == c.status && strings.Contains(text, c.want), "%s is %d %s", c.path, resp.StatusCode, text)
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
	s := open(t, service.RouterConfig{Access: access.NewGuard(keys, nil), Ready: func() map[string]error { return map[string]error{"a": errTest} }}, nil)
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
	check.ErrorIs(t, errors.Join(server.Stop(), group.Stop()), nil)
	var line struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
	}
	err := json.Unmarshal(log.Bytes(), &line)
	check.That(t, err == nil && line.Level == "ERROR" && strings.Contains(line.Msg, "out of stock"), "it logs %q: %v", &log, err)
}

func TestListen(t *testing.T) {
	t.Parallel()
	none, err := service.Listen(t.Context(), "shop", service.None)
	check.That(t, err == nil && none == nil && none.URL() == "" && none.Stop() == nil, "%v, %v", none, err)
	none.Serve(service.NewGroup(t.Context()), service.ServerConfig{})
	taken, err := service.Listen(t.Context(), "shop", ":0")
	check.Require(t, err == nil && strings.HasPrefix(taken.URL(), "http://127.0.0.1:"), "%v, %v", taken, err)
	_, err = service.Listen(t.Context(), "shop", strings.TrimPrefix(taken.URL(), "http://127.0.0.1"))
	check.That(t, err != nil && strings.Contains(err.Error(), "shop: listen on"), "got %v", err)
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
			if err != nil {
				return err
			}
			calls := 0
			_ = service.Relay(r.Context(), stream, time.Millisecond, func(ctx context.Context) (int, error) {
				calls++
				if calls == 2 {
					return 1, nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}, func(n int) error { return stream.Event("7", "status", map[string]int{"n": n}) })
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
	_, err = io.Copy(io.Discard, resp.Body)
	check.That(t, err == nil, "the stream is cut off: %v", err)
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
	check.ErrorIs(t, s.server.Stop(), nil)
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
		return errors.Join(errTest, ctx.Err())
	})
	select {
	case <-group.Ended():
		t.Error("it is over before anything has ended")
	default:
	}
	close(broken)
	<-group.Ended()
	err := group.Stop()
	check.That(t, errors.Is(err, errTest) && !errors.Is(err, context.Canceled), "got %v", err)
}

func TestPathEscape(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"a": "a", ".": "%2E", "..": "%2E%2E", "a/b": "a%2Fb", "...": "...", "שלום": "%D7%A9%D7%9C%D7%95%D7%9D"} {
		check.Equal(t, service.PathEscape(id), want, id)
	}
}

// slow is a body of n parts, each of which takes a second.
type slow int

func (s *slow) Read(p []byte) (int, error) {
	*s--
	if *s < 0 {
		return 0, io.EOF
	}
	natstest.Pass(time.Second)
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
		check.Equal(t, time.Since(begun), 40*time.Second, "time until the answer")
		if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" ||
			!strings.Contains(answer.Body.String(), `"code":"STORE_UNAVAILABLE"`) {
			t.Errorf("the answer is %d %v %s", answer.Code, answer.Header(), answer.Body)
		}
	})
}

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
		c.want("/livez", ada, "", "200")            // a probe has no quota
		c.want("/now", bob, "", "200")
		natstest.Pass(250 * time.Millisecond)
		c.want("/now", ada, "", "200")
		c.want("/now", ada, "", overRate)
		natstest.Pass(time.Second)
		c.hold("/slow", ada)
		c.hold("/slow", ada)
		c.want("/now", ada, "", overReqs)
		c.want("/now", bob, "", "200")
		natstest.Pass(time.Second)
		c.hold("/stream", ada)
		c.want("/stream", ada, "", overStreams)
		c.want("/socket", ada, "", overStreams)
		c.hold("/stream", bob)
		close(c.answer)
		c.waiting.Wait()
		natstest.Pass(time.Second)
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

// A caller that is bound to a user changes something so often in an hour, and then once whenever there is room. It reads all the same, and
// follows a sixteenth of the streams, of both kinds together. Others have no such bound.
func TestAUserChangesLittle(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	user := check.Must(access.Add(file, access.Key{Name: "ada", User: "7", Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	app := check.Must(access.Add(file, access.Key{Name: "app", Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	keys := check.Must(access.Open("shop", file, slog.New(slog.DiscardHandler)))(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, service.LimitConfig{Rate: 1000, Streams: 33, Writes: 60}, access.NewGuard(keys, nil))
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
		check.Equal(t, post(100, ada, user), map[string]int{"200": 60, over: 40})
		for n := range 5000 { // strangers, who have nobody forgotten
			c.want("/orders", fmt.Sprintf("10.0.%d.%d:1", n>>8, n&0xff), "", "401  after ")
		}
		check.Equal(t, post(10, bob, user), map[string]int{over: 10})
		check.Equal(t, post(100, ada, app), map[string]int{"200": 100})
		c.want("/orders", ada, user, "200")
		natstest.Pass(2 * time.Minute)
		check.Equal(t, post(10, ada, user), map[string]int{"200": 2, over: 8})
		natstest.Pass(time.Hour)
		c.length = 1 << 20
		check.Equal(t, post(12, ada, user), map[string]int{"200": 12})
		check.Equal(t, post(1, ada, user), map[string]int{"429 QUOTA_WRITES after 300": 1})
		natstest.Pass(time.Hour)
		c.length = -1 // of a body that does not say
		check.Equal(t, post(1, ada, user), map[string]int{"200": 1})
		check.Equal(t, post(1, ada, user), map[string]int{"429 QUOTA_WRITES after 240": 1})
		follow := func(http.ResponseWriter, *http.Request) error { <-c.answer; return nil }
		c.router.HandleStream("GET /inbox", access.Own(access.Read), follow)
		c.router.HandleSocket("GET /inbox/ws", access.Own(access.Read), follow)
		for _, path := range []string{"/inbox", "/inbox/ws", "/inbox"} {
			c.hold(path, ada, user)
		}
		c.want("/inbox", ada, user, overStreams)
		c.want("/inbox/ws", bob, user, overStreams)
		for range 33 {
			c.hold("/inbox", ada, app)
		}
		close(c.answer)
		c.waiting.Wait()
	})
}

// Strangers with as many addresses as they like leave half of the requests to callers with a key, and one of these as much to the
// strangers.
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
		for n := range 100 { // requests that have ended count no more
			c.want("/page", address(n), "", "200")
		}
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
		natstest.Pass(time.Second)
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
			Access: i.guard(t, i), Hosts: []string{"example.com"}, Limits: service.LimitConfig{Rate: 8}, Logger: slog.New(slog.DiscardHandler),
			Name: "shop", Origins: []string{trusted},
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
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://evil.test/", http.NoBody))
		check.Equal(t, w.Code, http.StatusMisdirectedRequest, "a host that leads here")
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

type order struct {
	Limit int       `json:"limit,omitempty"   jsonschema:"minimum=1,maximum=10" query:"limit"`
	Name  string    `json:"name"              path:"name"`
	Once  string    `header:"Idempotency-Key" json:"-"`
	Since time.Time `json:"since,omitzero"    query:"since"`
	Text  string    `json:"text"`
}

func (o order) Validate() error {
	var wrong contracts.Mistakes
	wrong.Add(o.Text == "", "/text", "is required")
	return wrong.In("order")
}

type sold struct{ order }

func (s sold) HTTP(header http.Header) (status int, body any) {
	header.Set("Location", "/v1/orders/"+s.Name)
	return http.StatusCreated, s
}

// An operation has one request over HTTP and NATS, and every mistake of it is reported at once.
func TestOperation(t *testing.T) {
	t.Parallel()
	op := service.NewOp(service.Op{Route: "POST /v1/orders/{name}", Subject: "shop.v1.order", MaxBody: 1 << 10, Need: access.Public(), Strict: true},
		func(_ context.Context, o order) (sold, error) { return sold{o}, nil })
	s := open(t, service.RouterConfig{}, func(r *service.Router) { r.Add(op) })
	answer, text := s.call(t, http.MethodPost, "/v1/orders/soup?limit=2&since=2026-12-01T08:00:00Z", `{"text":"hot","name":"of the path"}`)
	check.Equal(t, text, `{"limit":2,"name":"soup","since":"2026-12-01T08:00:00Z","text":"hot"}`+"\n", "answer")
	check.Equal(t, answer.Header.Get("Location")+http.StatusText(answer.StatusCode), "/v1/orders/soupCreated", "head")

	for query, want := range map[string]string{
		"?limit=11&since=soon&limt=1&since=now": "/text ?limt ?since ?limit ?since",
		"?limit=x":                              "/text ?limit",
		"?limit=0":                              "/text ?limit",
	} {
		answer, text = s.call(t, http.MethodPost, "/v1/orders/soup"+query, `{"text":"hot","text":""}`)
		var p service.Problem
		check.OK(t, json.Unmarshal([]byte(text), &p))
		check.Equal(t, paths(p.Errors), want, query)
		check.Equal(t, answer.StatusCode, http.StatusBadRequest, query)
	}
	answer, _ = s.call(t, http.MethodPost, "/v1/orders/soup", `{"text":"`+strings.Repeat("x", 1<<10)+`"}`)
	check.Equal(t, answer.StatusCode, http.StatusRequestEntityTooLarge, "a long body")

	endpoint := service.Endpoints([]service.Op{op})[0]
	check.Equal(t, endpoint.Name+" "+endpoint.Takes, `order {"name":"…","text":"…"}`, "endpoint")
	data, err := endpoint.Answer(t.Context(), service.Request{Data: []byte(`{"name":"soup","text":"hot"}`)})
	check.Equal(t, string(check.Must(data, err)(t)), `{"name":"soup","text":"hot"}`, "over NATS")
	_, err = endpoint.Answer(t.Context(), service.Request{
		Data: []byte(`{"text":"hot"}`), Header: nats.Header{"Idempotency-Key": {"a", "b"}},
	})
	invalid, _ := errors.AsType[*contracts.ValidationError](err)
	check.Require(t, invalid != nil, "%v", err)
	check.Equal(t, paths(invalid.Fields), "/name Idempotency-Key", "mistakes over NATS")
}

func paths(fields []contracts.FieldError) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Path)
	}
	return strings.Join(all, " ")
}
