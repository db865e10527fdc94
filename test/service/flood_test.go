//go:build unix

package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
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

// flooded is a service with a caller that floods it, and another one that must not suffer.
type flooded struct {
	*testing.T

	client  *http.Client
	conns   []net.Conn
	other   string // the key of the other caller
	service *service.Service
	vandal  string // the key of the flood
}

func newFlooded(t *testing.T, limits service.LimitConfig) *flooded {
	t.Helper()
	files(t)
	f := &flooded{T: t, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
	keys := filepath.Join(t.TempDir(), "keys.json")
	for name, secret := range map[string]*string{"other": &f.other, "vandal": &f.vandal} {
		var err error
		*secret, err = access.Add(keys, access.Key{Name: name, Scopes: []access.Scope{access.Publish, access.Read}})
		check.OK(t, err)
	}
	spec := shop(service.BaseConfig{Keys: keys, LimitConfig: limits, Logger: slog.New(slog.DiscardHandler)})
	routes := spec.Routes
	spec.Routes = func(r *service.Router) {
		routes(r)
		r.Handle("GET /v1/ping", access.All(access.Read), func(http.ResponseWriter, *http.Request) error {
			return f.service.Conn.FlushTimeout(time.Minute) // a round trip, as a look into the store
		})
		r.Handle("POST /v1/items", access.All(access.Publish), func(w http.ResponseWriter, r *http.Request) error { return check.Err(service.Body(w, r, 1<<20)) })
		r.HandleStream("GET /v1/events", access.All(access.Read), func(w http.ResponseWriter, r *http.Request) error {
			_, err := service.OpenStream(w, r, service.Retry)
			if err == nil {
				<-r.Context().Done()
			}
			return err
		})
	}
	f.service = start(t, spec)
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
	conns, err := f.flood(n, text).open()
	f.conns = append(f.conns, conns...)
	check.OK(f, err)
	return conns
}

// flood is one that opens connections and sends the same on each.
func (f *flooded) flood(n int, text string) flood {
	return flood{Address: strings.TrimPrefix(f.service.URL(), "http://"), N: n, Text: text}
}

// request is the head of a request of the flood.
func (f *flooded) request(line string, more ...string) string {
	return strings.Join(append([]string{line + " HTTP/1.1", "Host: localhost", "Authorization: Bearer " + f.vandal}, more...), "\r\n") + "\r\n\r\n"
}

// read asks for something as the other caller, on a connection of its own.
func (f *flooded) read(method, path string) string {
	f.Helper()
	r := check.Must(http.NewRequestWithContext(f.Context(), method, f.service.URL()+path, http.NoBody))(f)
	r.Header.Set("Authorization", "Bearer "+f.other)
	resp, err := f.client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if path != "/v1/events" {
		_, _ = io.Copy(io.Discard, resp.Body) // the status counts
	}
	return said(resp)
}

// reads makes many reads, some at a time, and counts the answers by their texts. It logs the time that 99 of 100 take at most.
func (f *flooded) reads(n, atOnce int) map[string]int {
	f.Helper()
	var mu sync.Mutex
	counts, times := map[string]int{}, []time.Duration{}
	turns := make(chan struct{}, n)
	for range n {
		turns <- struct{}{}
	}
	close(turns)
	var reading sync.WaitGroup
	for range atOnce {
		reading.Go(func() {
			for range turns {
				began := time.Now()
				answer := f.read(http.MethodGet, "/v1/ping")
				mu.Lock()
				counts[answer]++
				times = append(times, time.Since(began))
				mu.Unlock()
			}
		})
	}
	reading.Wait()
	slices.Sort(times)
	f.Logf("%d reads, %d at once: %v, p99 %s", n, atOnce, counts, times[len(times)*99/100])
	return counts
}

// served checks that the other caller gets all that it asks for.
func (f *flooded) served() {
	f.Helper()
	check.Same(f, "reads", f.reads(200, 4)["200"], 200)
	for _, r := range []string{"POST /v1/items", "GET /v1/events", "GET /readyz"} {
		method, path, _ := strings.Cut(r, " ")
		check.Same(f, r, f.read(method, path), "200")
	}
}

// Connections without a request make room for those with one: idle ones, silent ones and those whose headers do not end. A
// connection with a request makes none.
func TestIdleConnectionsHurtNobody(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Connections: 1000, Rate: 100_000})
	busy := f.open(1, f.request("POST /v1/items", "Content-Length: 1000", "Expect: 100-continue"))
	if got := answers(busy); got["100"] != 1 { // it is being answered
		t.Fatal(got)
	}
	for _, text := range []string{"", "GET /v1/ping HTTP/1.1\r\nHo", f.request("GET /v1/items/7")} {
		f.open(1100, text)
		f.served()
	}
	_, _ = io.WriteString(busy[0], strings.Repeat("x", 1000)) // read next
	check.Same(t, "the oldest connection, with a request", answers(busy)["200"], 1)
}

// A caller opens as many streams as its quota has, and other callers open theirs. The service ends them all when it stops.
func TestIdleStreamsHurtNobody(t *testing.T) {
	t.Parallel()
	n := min(10_000, files(t)-otherFiles)
	f := newFlooded(t, service.LimitConfig{Connections: n + n/4, Rate: 100_000, Streams: n - n/10})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client := floods.Start(t, f.flood(n, f.request("GET /v1/events")))
	var got map[string]int
	check.OK(t, json.Unmarshal([]byte(client.Line()), &got))
	check.That(t, got["200"] == n-n/10 && got["429 after 2"] == n/10, "%d streams: %v", n, got)
	runtime.ReadMemStats(&after)
	t.Logf("%d streams, %d KiB each", n, (after.Sys-before.Sys)>>10/uint64(n))
	f.served()
	client.Stop()
}

// Bodies that do not end use up the quota of their caller, or are refused when nobody knows it.
func TestSlowBodiesHurtNobody(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Connections: 2000, Rate: 100_000, Requests: 100})
	slow := f.request("POST /v1/items", "Content-Length: 1000") + "x"
	f.open(500, strings.Replace(slow, f.vandal, "unknown", 1))
	f.served()
	f.open(500, slow)
	f.served()
}

// A flood within the quotas of its callers gets all requests that the service answers at a time. The others are told when to
// come back, probes are answered, and so is everybody when the flood is over.
func TestRequestsBeyondTheBoundAreTold(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Connections: 160, Rate: 100_000, Requests: 1000})
	conns := f.open(140, f.request("POST /v1/items", "Content-Length: 1000", "Expect: 100-continue"))
	if got := answers(conns); got["100"] != 140 { // each is being answered
		t.Fatal(got)
	}
	check.Same(t, "reads", f.reads(100, 4)["503 after 2"], 100)
	check.Same(t, "probe", f.read(http.MethodGet, "/livez"), "200")
	for _, c := range conns {
		_, _ = io.WriteString(c, strings.Repeat("x", 1000)) // read next
	}
	check.Same(t, "flood", answers(conns)["200"], 140)
	f.served()
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
		resp, err := transport.RoundTrip(r)
		check.OK(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		counts[said(resp)]++
		if resp.StatusCode == http.StatusOK {
			answers, bodies = append(answers, resp), append(bodies, write) //nolint:bodyclose // it is
		}
	}
	check.That(t, counts["200"] == 14 && counts["503 after 2"] == 6 && answers[0].ProtoMajor == 2, "%s: %v", answers[0].Proto, counts)
	for i, body := range bodies {
		_, _ = io.WriteString(body, "hello") // the answer counts
		body.Close()
		text, err := io.ReadAll(answers[i].Body)
		check.That(t, err == nil && string(text) == "hello", "%q: %v", text, err)
		if i > 0 {
			continue
		}
		// The connection has requests left, and makes room for none of these.
		for range 20 {
			c := check.Must(net.Dial("tcp", strings.TrimPrefix(s.URL(), "https://")))(t)
			t.Cleanup(func() { c.Close() })
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: a.pool(t)}}}
		resp, err := client.Get(s.URL() + "/livez")
		check.Require(t, err == nil && resp.Body.Close() == nil, "%v", err)
	}
}

// A thousand reads at once are served within the quota of their caller; beyond it they are told when to come back.
func TestReadsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, service.LimitConfig{Rate: 100_000, Requests: 1000})
	check.Same(t, "reads", f.reads(3000, 1000)["200"], 3000)
	f = newFlooded(t, service.LimitConfig{})
	got := f.reads(3000, 1000)
	check.That(t, got["200"] != 0 && got["200"]+got["429 after 1"]+got["429 after 2"]+got["503 after 2"] == 3000, "reads: %v", got)
}

// flood is the task of a client that floods a service over connections, on each of which it sends the same.
type flood struct {
	Address string
	N       int
	Text    string
}

// floods are clients in processes of their own, whose files are not those of the service. They print the counts of the answers, and
// keep the connections open.
var floods = crash.Role[flood]{Name: "flood", Run: func(ctx context.Context, f flood) error {
	conns, err := f.open()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers(conns)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}}

func (f flood) open() ([]net.Conn, error) {
	conns := make([]net.Conn, f.N)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", f.Address); err != nil {
			return conns[:i], err
		}
		_, _ = io.WriteString(conns[i], f.Text) // the service may have closed it already
	}
	return conns, nil
}

// answers counts the answers on connections by their texts.
func answers(conns []net.Conn) map[string]int {
	counts := map[string]int{}
	for _, c := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // a stream does not end
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
	m, err := service.StartMicro(nc, service.MicroConfig{
		Description: "Sells", Logger: slog.New(slog.DiscardHandler), Name: "shop", Timeout: time.Millisecond, Version: "1.0.0",
		Endpoints: []service.Endpoint{{Name: "sell", Subject: "shop.v1.sell", Answer: func(ctx context.Context, _ service.Request) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}},
	})
	check.OK(t, err)
	defer func() {
		check.Is(t, m.Stop(), nil)
	}()
	answer := check.Must(nc.RequestWithContext(t.Context(), "shop.v1.sell", nil))(t)
	code := answer.Header.Get(micro.ErrorCodeHeader)
	check.That(t, code == "503" && string(answer.Data) == `{"code":"STORE_UNAVAILABLE"}`, "%s %s", code, answer.Data)
}
