//go:build unix

package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// otherFiles is how many files all floods but that of streams have open at most. Both ends of a connection are files of this
// process.
const otherFiles = 10_000

// files returns how many files the process may open. It skips the test when they are too few.
func files(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	check.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < otherFiles+1000 {
		t.Skipf("the process may open %d files, too few for a flood", limit.Cur)
	}
	return int(min(limit.Cur, 1<<20))
}

// keyed is how often the other caller reads during a flood.
const keyed = 30

// flooded is a service with a caller that floods it, and another one that must not suffer.
type flooded struct {
	*testing.T

	client  *http.Client
	tls     *tls.Config
	conns   []net.Conn
	log     lines
	nats    *nats.Conn // of another user
	other   string     // the key of the other caller
	reused  *http.Client
	service *service.Service
	turn    atomic.Int32
	vandal  string // the key of the flood
}

func newFlooded(t *testing.T, limits service.LimitConfig, change ...func(*service.BaseConfig)) *flooded {
	t.Helper()
	files(t)
	f := &flooded{T: t, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
	f.reused = f.client
	keys := filepath.Join(t.TempDir(), "keys.json")
	for name, secret := range map[string]*string{"other": &f.other, "vandal": &f.vandal} {
		*secret = check.Must(access.Add(keys, access.Key{Name: name, Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	}
	cfg := service.BaseConfig{
		Exports: check.Must(export.Start(t.Context(), export.Config{Service: "shop"}))(t), Keys: keys, LimitConfig: limits,
		Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
	}
	for _, set := range change {
		set(&cfg)
	}
	spec := shop(cfg)
	spec.Endpoints = func() []service.Endpoint {
		return []service.Endpoint{{Name: "sell", Subject: "shop.v1.sell", Answer: func(context.Context, service.Request) ([]byte, error) {
			return []byte("{}"), f.service.Conn.FlushTimeout(time.Minute)
		}}}
	}
	routes := spec.Routes
	spec.Routes = func(r *service.Router) {
		routes(r)
		r.Handle("GET /v1/ping", access.All(access.Read), func(http.ResponseWriter, *http.Request) error {
			return f.service.Conn.FlushTimeout(time.Minute) // a round trip, as a look into the store
		})
		r.Handle("POST /v1/items", access.All(access.Publish),
			func(w http.ResponseWriter, r *http.Request) error { return check.Err(service.Body(w, r, 1<<20)) })
		r.HandleStream("GET /v1/events", access.All(access.Read), func(w http.ResponseWriter, r *http.Request) error {
			_, err := service.OpenStream(w, r, service.Retry)
			if err == nil {
				<-r.Context().Done()
			}
			return err
		})
		r.HandleSocket("GET /v1/ws", access.All(access.Read), func(w http.ResponseWriter, req *http.Request) error {
			r.ServeSocket(w, req, func(ctx context.Context, _ *service.Socket) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return nil
		})
	}
	srv := natstest.Server(t)
	nc, _ := natstest.Connect(t, srv)
	f.nats, _ = natstest.Connect(t, srv)
	f.service = check.Must(service.Start(t.Context(), nc, spec))(t)
	t.Cleanup(func() { check.ErrorIs(t, f.service.Stop(), nil) })
	t.Cleanup(f.end)
	return f
}

// end closes the connections of the flood.
func (f *flooded) end() {
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

// open opens connections and sends the same on each.
func (f *flooded) open(n int, text string) []net.Conn {
	f.Helper()
	for range n {
		conn := check.Must(net.Dial("tcp", strings.TrimPrefix(f.service.URL(), "http://")))(f)
		f.conns = append(f.conns, conn)
		_, _ = io.WriteString(conn, text) // the service may have closed it already
	}
	return f.conns[len(f.conns)-n:]
}

// request is the head of a request of the flood.
func (f *flooded) request(line string, more ...string) string {
	return strings.Join(append([]string{line + " HTTP/1.1", "Host: localhost", "Authorization: Bearer " + f.vandal}, more...), "\r\n") + "\r\n\r\n"
}

// read asks for something as the other caller, by turns on a new connection and on one that was used before.
func (f *flooded) read(method, path string) string {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.service.URL()+path, http.NoBody)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+f.other)
	client := f.client
	if f.turn.Add(1)%2 == 0 {
		client = f.reused
	}
	resp, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if path != "/v1/events" {
		_, _ = io.Copy(io.Discard, resp.Body) // the status counts
	}
	return said(resp)
}

// atOnce is how many requests of the other caller are under way at a time.
const atOnce = 6

// reads counts the answers to n reads by their texts.
func (f *flooded) reads(n int) map[string]int {
	f.Helper()
	counts := map[string]int{}
	for _, answer := range f.ask(slices.Repeat([]string{"GET /v1/ping"}, n)) {
		counts[answer]++
	}
	return counts
}

// ask sends the requests as the other caller, and returns the answers in their order.
func (f *flooded) ask(requests []string) []string {
	f.Helper()
	answers := make([]string, len(requests))
	var next atomic.Int64
	var asking sync.WaitGroup
	for range atOnce {
		asking.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(requests)); i = next.Add(1) - 1 {
				method, path, _ := strings.Cut(requests[i], " ")
				answers[i] = f.read(method, path)
			}
		})
	}
	asking.Wait()
	return answers
}

// served checks that the other caller gets all that it asks for.
func (f *flooded) served() {
	f.Helper()
	check.Equal(f, f.reads(keyed), map[string]int{"200": keyed}, "reads")
	others := []string{"POST /v1/items", "GET /v1/events", "GET /readyz", "GET /livez", "GET /metrics"}
	for i, answer := range f.ask(others) {
		check.Equal(f, answer, "200", others[i])
	}
}

// A connection with a request makes no room for others, however many come.
func TestAConnectionWithARequestStays(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Connections: 1000, Rate: 100_000})
	busy := f.open(1, f.request("POST /v1/items", "Content-Length: 1000", "Expect: 100-continue"))
	check.Require(t, answers(busy)["100"] == 1, "it is not being answered")
	f.open(1100, f.request("GET /v1/items/7"))
	f.served()
	_, _ = io.WriteString(busy[0], strings.Repeat("x", 1000)) // read next
	check.Equal(t, answers(busy)["200"], 1, "the oldest connection, with a request")
}

// attack is what 16 workers repeat, each on its own connections.
type attack struct {
	name string

	do   func(*flooded) // instead of the others
	hold int            // so many connections stay open, and no answer is read; without it the next request follows the answer
	how  string         // "tcp", "h2", "" for TLS
	text string         // # is another number each time
}

// A caller with a key, and probes, are served during every flood. Of refused requests, failed handshakes and failures the log has some
// lines.
func TestFloodsHurtNobody(t *testing.T) {
	t.Parallel()
	f := secureFlooded(t)
	without := func(line string, more ...string) string {
		return strings.Replace(f.request(line, more...), "Authorization: Bearer "+f.vandal, "X-Forwarded-For: 10.0.0.#", 1)
	}
	with := func(secret string) string { return strings.Replace(f.request("GET /v1/ping"), f.vandal, secret, 1) }
	for _, a := range []attack{
		{name: "no key, of many users of one proxy, who say to come from elsewhere", text: without("GET /v1/ping")},
		{name: "wrong keys", text: with("expediter_#")},
		{name: "long keys", text: with(strings.Repeat("#", 15<<10))},
		{name: "a valid key, for many users", text: f.request("GET /v1/items/#")},
		{name: "metrics with a valid key", text: f.request("GET /metrics")},
		{name: "metrics without one", text: without("GET /metrics")},
		{name: "probes", text: without("GET /readyz?verbose")},
		{name: "probes whose answers nobody reads", text: strings.Repeat(without("GET /livez"), 5000), hold: 20},
		{name: "no such path", text: without("GET /v2/#")},
		{name: "headers without an end", text: "GET /v1/ping HTTP/1.1\r\nHo", hold: 44},
		{name: "connections without a request", hold: 44},
		{name: "handshakes without an end", how: "tcp", text: "\x16\x03\x01\x02\x00\x01", hold: 44},
		{name: "no handshakes", how: "tcp", text: "hello\r\n\r\n"},
		{name: "large headers", text: without("GET /v1/ping", "X: "+strings.Repeat("x", 1<<20))},
		{name: "slow bodies", text: f.request("POST /v1/items", "Content-Length: 1000") + "x", hold: 44},
		{name: "slow bodies without a key", text: without("POST /v1/items", "Content-Length: 1000") + "x", hold: 44},
		{name: "large bodies without a key", text: without("POST /v1/items", "Content-Length: 1000000") + strings.Repeat("x", 1_000_000)},
		{name: "large bodies", text: f.request("POST /v1/items", "Content-Length: 1000000") + strings.Repeat("x", 1_000_000)},
		{name: "answers that nobody reads", text: strings.Repeat(f.request("GET /metrics"), 100), hold: 20},
		{name: "event streams", text: f.request("GET /v1/events"), hold: 44},
		{name: "WebSockets", text: f.request("GET /v1/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="), hold: 44},
		{name: "requests of HTTP/2 that are reset", how: "h2", text: frames("", true), hold: 2},
		{name: "answers of HTTP/2 that nobody takes", how: "h2", text: frames("\x00\x04\x00\x00\x00\x00", false), hold: 20},
		{name: "requests over NATS", do: func(f *flooded) {
			for range 100 {
				_ = f.nats.PublishRequest("shop.v1.sell", "nobody", nil) // the flood goes on
			}
			_ = f.nats.Flush() // as above
		}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var begun, working sync.WaitGroup
		for range 16 {
			begun.Add(1)
			working.Go(func() { a.work(ctx, f, begun.Done) })
		}
		begun.Wait()
		t.Log(a.name)
		f.served()
		cancel()
		working.Wait()
	}
	check.That(t, f.log.count("\n") < 1000, "%d lines of the log", f.log.count("\n"))
	for _, part := range []string{"handshake error", "request refused"} { // which count the others
		check.That(t, f.log.count(part) > 0, "the log has no %s", part)
	}
}

// work repeats the attack until ctx ends. It calls begun when all connections are open that stay.
func (a attack) work(ctx context.Context, f *flooded, begun func()) {
	var held []net.Conn
	for n := 0; ctx.Err() == nil; n++ {
		if n == a.hold {
			begun()
		}
		if a.do != nil {
			a.do(f)
			continue
		}
		conn := f.dial(ctx, a.how)
		if conn == nil {
			continue
		}
		held = append(held, conn)
		stop := context.AfterFunc(ctx, func() { conn.Close() }) // the answer may not come
		for {
			_, err := io.WriteString(conn, strings.ReplaceAll(a.text, "#", strconv.Itoa(int(f.turn.Add(1)))))
			if err != nil || a.hold > 0 || answered(bufio.NewReader(conn)) == nil {
				break
			}
		}
		stop()
		if len(held) > a.hold {
			held[0].Close()
			held = held[1:]
		}
	}
	for _, conn := range held {
		conn.Close()
	}
}

// answered reads an answer to its end, nil when there is none.
func answered(r *bufio.Reader) *http.Response {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return nil
	}
	return resp
}

// dial opens a connection, nil when the service closes it.
func (f *flooded) dial(ctx context.Context, how string) net.Conn {
	address := strings.TrimPrefix(f.service.URL(), "https://")
	var conn net.Conn
	var err error
	if how == "tcp" {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	} else {
		config := f.tls.Clone()
		if how != "" {
			config.NextProtos = []string{how}
		}
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil
	}
	return conn
}

// frames are 2000 requests of one connection of HTTP/2 (RFC 9113) for the path /.
func frames(settings string, reset bool) string {
	var text strings.Builder
	frame := func(kind, flags byte, stream int, payload string) {
		text.Write([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, byte(stream >> 8), byte(stream)})
		text.WriteString(payload)
	}
	text.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(4, 0, 0, settings)
	for i := range 2000 {
		frame(1, 5, 2*i+1, "\x82\x84\x87\x41\x09localhost") // HEADERS, the last of the stream and of the header
		if reset {
			frame(3, 0, 2*i+1, "\x00\x00\x00\x08") // RST_STREAM
		}
	}
	return text.String()
}

// secureFlooded is a service with keys, over TLS.
func secureFlooded(t *testing.T) *flooded {
	t.Helper()
	a := newAuthority(t)
	a.issue(t, "shop")
	f := newFlooded(t, service.LimitConfig{Connections: 640}, func(c *service.BaseConfig) {
		c.TLSCert, c.TLSKey = a.file("shop.pem"), a.file("shop.key")
	})
	config := &tls.Config{RootCAs: a.pool(t)}
	f.tls = config.Clone() // with handshakes that compute less: thousands of them are most of the test
	f.tls.ClientSessionCache, f.tls.CurvePreferences = tls.NewLRUClientSessionCache(1), []tls.CurveID{tls.X25519}
	f.client.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}
	reused := &http.Transport{TLSClientConfig: config}
	t.Cleanup(reused.CloseIdleConnections)
	f.reused = &http.Client{Transport: reused, Timeout: time.Minute}
	return f
}

// While every request that the service answers at a time is taken, and every stream, probes are answered, and others are told when to come
// back. So is everybody when the flood is over.
func TestRequestsBeyondTheBoundAreTold(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Connections: 160}, func(c *service.BaseConfig) { c.Keys = "" })
	f.open(40, f.request("GET /v1/events"))
	conns := f.open(100, f.request("POST /v1/items", "Content-Length: 1000", "Expect: 100-continue"))
	check.Require(t, answers(conns)["100"] == 100, "not each is being answered")
	check.Equal(t, f.reads(100)["503 after 2"], 100, "reads")
	f.open(300, "GET /livez HTTP/1.1\r\nHost: loc") // the other places
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		check.Equal(t, f.read(http.MethodGet, path), "200", path)
	}
	for _, c := range conns {
		_, _ = io.WriteString(c, strings.Repeat("x", 1000)) // read next
	}
	check.Equal(t, answers(conns)["200"], 100, "flood")
	f.served()
}

// A refused request is answered before its body has come. Its connection goes on if the body is there, so that a client need not come back.
func TestRefusedBodiesAreNotAwaited(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{})
	for _, c := range []struct {
		sent, size int
		header     string
		closed     bool
	}{{1000, 1000, "", false}, {0, 1000, "", true}, {999, 1000, "", true}, {0, 1 << 20, "", true}, {0, 1000, "Expect: 100-continue\r\n", true}} {
		conn := f.open(1, fmt.Sprintf("POST /v1/items HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", c.header, c.size, strings.Repeat("x", c.sent)))[0]
		check.OK(t, conn.SetReadDeadline(time.Now().Add(20*time.Second))) // the server would read for 30 seconds
		answer := bufio.NewReader(conn)
		for range 2 {
			resp := answered(answer)
			check.Require(t, resp != nil, "%+v: no answer", c)
			check.That(t, resp.StatusCode == http.StatusUnauthorized && resp.Close == c.closed, "%+v: %s, closed %t", c, resp.Status, resp.Close)
			if resp.Close {
				break
			}
			_, _ = io.WriteString(conn, "GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n") // read next
		}
	}
}

// Each request of a connection that carries many of them (HTTP/2) counts. Neither a refusal nor the end of one ends the others.
func TestRequestsOfOneConnectionCount(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "shop")
	spec := shop(service.BaseConfig{
		LimitConfig: service.LimitConfig{Connections: 16}, Logger: slog.New(slog.DiscardHandler), TLSCert: a.file("shop.pem"), TLSKey: a.file("shop.key"),
	})
	spec.Routes = func(r *service.Router) {
		r.Handle("POST /v1/echo", access.All(access.Publish), func(w http.ResponseWriter, r *http.Request) error {
			control := http.NewResponseController(w)
			if err := errors.Join(control.EnableFullDuplex(), control.Flush()); err != nil {
				return err
			}
			_, err := io.Copy(w, r.Body)
			return err
		})
	}
	s := start(t, spec)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: a.pool(t)}}
	defer transport.CloseIdleConnections()
	answers, bodies, counts := []*http.Response{}, []*io.PipeWriter{}, map[string]int{}
	for range 20 {
		body, write := io.Pipe()
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/echo", body))(t)
		resp := check.Must(transport.RoundTrip(r))(t)
		t.Cleanup(func() { resp.Body.Close() })
		counts[said(resp)]++
		if resp.StatusCode == http.StatusOK {
			answers, bodies = append(answers, resp), append(bodies, write)
		}
	}
	check.That(t, counts["200"] == 14 && counts["503 after 2"] == 6 && answers[0].ProtoMajor == 2, "%s: %v", answers[0].Proto, counts)
	for i, body := range bodies {
		_, _ = io.WriteString(body, "hello") // the answer counts
		body.Close()
		text, err := io.ReadAll(answers[i].Body)
		check.That(t, err == nil && string(text) == "hello", "%q: %v", text, err)
	}
}

// answers counts the answers on connections by their texts.
func answers(conns []net.Conn) map[string]int {
	counts := map[string]int{}
	for _, c := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			counts["closed"]++
			continue
		}
		counts[said(resp)]++
	}
	return counts
}

// said returns the status, and for 429 and 503 Retry-After.
func said(resp *http.Response) string {
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Sprintf("%d after %s", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	return fmt.Sprint(resp.StatusCode)
}

// A request over NATS whose answer takes too long is answered with an error that programs understand.
func TestAnAnswerOverNATSThatTakesTooLongIsAnError(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	m := check.Must(service.StartMicro(nc, service.MicroConfig{
		Description: "Sells", Logger: slog.New(slog.DiscardHandler), Name: "shop", Timeout: time.Millisecond, Version: "1.0.0",
		Endpoints: []service.Endpoint{{Name: "sell", Subject: "shop.v1.sell", Answer: func(ctx context.Context, _ service.Request) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}},
	}))(t)
	defer func() { check.ErrorIs(t, m.Stop(), nil) }()
	answer := check.Must(nc.RequestWithContext(t.Context(), "shop.v1.sell", nil))(t)
	code := answer.Header.Get(micro.ErrorCodeHeader)
	check.That(t, code == "503" && string(answer.Data) == `{"code":"STORE_UNAVAILABLE"}`, "%s %s", code, answer.Data)
}

// Answers of the store do not wait behind the requests of a flood.
func TestRequestsOverNATSHaveAConnectionOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{})
	const requests = 1000
	before := f.service.Conn.Stats().InMsgs
	for range requests {
		check.OK(t, check.Err(f.nats.RequestWithContext(t.Context(), "shop.v1.sell", nil)))
	}
	met := f.service.Conn.Stats().InMsgs - before
	check.That(t, met < requests, "the connection for the store got %d messages during %d requests", met, requests)
}
