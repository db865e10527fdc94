package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// problem is an answer to a bad request.
type problem struct {
	Title  string                 `json:"title"`
	Status int                    `json:"status"`
	Detail string                 `json:"detail"`
	Errors []contracts.FieldError `json:"errors"`
}

func (i *instance) problem(t *testing.T, method, path, body string) (problem, http.Header) {
	t.Helper()
	status, header, data := i.do(t, method, path, body, nil)
	var p problem
	err := json.Unmarshal(data, &p)
	check.Require(t, err == nil, "%d: %s: %v", status, data, err)
	check.That(t, p.Status == status && header.Get("Content-Type") == "application/problem+json" && p.Title != "",
		"answer %d %v is %+v, want a problem", status, header, p)
	return p, header
}

// TestBadInput: a bad request is refused with its failing fields, and leaves nothing behind. Package contracts tests the rules.
func TestBadInput(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := start(t, srv, options{})
	many := check.Must(contracts.Encode(contracts.EnrichRequest{Results: places(100)}))(t)
	good := strings.TrimPrefix(strings.TrimSuffix(string(many), "]}"), `{"results":[`)
	for name, c := range map[string]struct {
		body   string
		status int
		fields []string
	}{
		"empty":          {``, 400, []string{""}},
		"not JSON":       {`hello`, 400, []string{""}},
		"wrong types":    {`{"requestId":7,"cityText":[],"results":{},"waitMs":"5"}`, 400, []string{"/cityText", "/requestId", "/results", "/waitMs"}},
		"missing fields": {`{"results":[{},{"placeId":"b"},{"name":"C"}]}`, 400, []string{"/results/0/name", "/results/0/placeId", "/results/1/name", "/results/2/placeId"}},
		"101 results":    {`{"results":[` + good + `,{"placeId":"x","name":"X"}]}`, 400, []string{"/results"}},
		"long wait":      {`{"results":[],"waitMs":60001}`, 400, []string{"/waitMs"}},
		"over 1 MiB":     {`{"results":[],"x":"` + strings.Repeat("x", 1<<20) + `"}`, 413, nil},
		"bad provider":   {`{"results":[],"providers":["a b"]}`, 400, []string{"/providers/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := i.problem(t, http.MethodPost, "/v1/enrich", c.body)
			check.Equal(t, p.Status, c.status, "status")
			var fields []string
			for _, e := range p.Errors {
				fields = append(fields, e.Path)
				check.That(t, e.Problem != "", "field %q has no problem", e.Path)
			}
			slices.Sort(fields)
			// The names of repeated fields are part of the contract.
			check.Equal(t, fields, c.fields, "failing fields")
			check.That(t, len(p.Detail) <= 4096, "the answer has %d bytes of detail", len(p.Detail))
		})
	}
	t.Cleanup(func() { check.Equal(t, i.service.Stats().Requests, 0, "bad requests got through") })
	p, _ := i.problem(t, http.MethodPost, "/v1/enrich?wait=soon", `{"results":[]}`)
	check.That(t, p.Status == 400 && len(p.Errors) == 1 && p.Errors[0].Path == "?wait", "a bad wait is %+v", p)
	for _, wait := range []string{"-1s", "61s", "1e9h"} {
		p, _ := i.problem(t, http.MethodPost, "/v1/enrich?wait="+wait, `{"results":[]}`)
		check.That(t, p.Status == 400, "wait=%s is %d", wait, p.Status)
	}
}

// hostileIDs are texts that must never be a path, a wildcard, or another's data.
var hostileIDs = map[string]string{
	"slash": "a/b", "dots": "..", "dot": ".", "climb": "../../etc/passwd", "backslash": `a\b`, "space": "a b", "star": "*",
	"wildcard": ">", "tokens": "a.b.c", "Hebrew": "פיצה", "NUL": "a\x00b", "line break": "a\r\nX: y", "percent": "%2e%2e",
	"query": "a?b=c#d", "longest": strings.Repeat("x", 320), "equals": "=YQ", "empty token": " ",
}

// TestHostileIDs goes the whole way with ids that are neither tokens nor paths: each is its own place and its own
// request.
func TestHostileIDs(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{works: true})
	var results []contracts.Restaurant
	for name, id := range hostileIDs {
		results = append(results, contracts.Restaurant{PlaceID: id, Name: "Kitchen " + name, Address: "Harbour Road 1", CityText: "Haifa"})
	}
	resp := contracts.EnrichResponse{Pending: 1}
	for resp.Pending > 0 {
		resp = i.ask(t, contracts.EnrichRequest{Results: results, WaitMS: 30_000})
	}
	for n, r := range resp.Results {
		s, _ := r.State("wolt")
		check.That(t, s.URL != nil && *s.URL == linkOf(results[n].Name), "%q is %+v, want its own link", r.PlaceID, s)
	}
	for name, id := range hostileIDs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := contracts.EnrichRequest{RequestID: id, Results: []contracts.Restaurant{{PlaceID: "new-" + name, Name: name}}}
			body := string(check.Must(contracts.Encode(request))(t))
			status, header, data := i.do(t, http.MethodPost, "/v1/enrich", body, nil)
			check.Require(t, status == http.StatusOK, "%d: %s", status, data)
			link := header.Get("Link")
			path, found := strings.CutPrefix(link, "<")
			path, ok := strings.CutSuffix(path, `>; rel="monitor"`)
			check.Require(t, found && ok, "Link is %q", link)
			status, _, data = i.do(t, http.MethodGet, strings.TrimSuffix(path, "/events"), "", nil)
			var s enrich.Snapshot
			check.OK(t, json.Unmarshal(data, &s))
			check.Require(t, status == http.StatusOK && s.RequestID == id && len(s.Places) == 1, "%d: %s, want the request", status, data)
			check.Equal(t, s.Places[0].PlaceID, "new-"+name)
		})
	}
}

// TestUnknownRequests: any id that is not known is answered with 404.
func TestUnknownRequests(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{})
	ids := []string{"nobody", strings.Repeat("x", 10<<10)}
	for _, id := range hostileIDs {
		ids = append(ids, id)
	}
	for _, id := range ids {
		escaped := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
		for _, path := range []string{"", "/events", "/ws"} {
			p, _ := i.problem(t, http.MethodGet, "/v1/requests/"+escaped+path, "")
			check.That(t, p.Status == http.StatusNotFound, "%q%s is %+v, want 404", id, path, p)
		}
	}
}

func TestWaitParameter(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{works: true})
	status, header, data := i.do(t, http.MethodPost, "/v1/enrich?wait=30s", `{"requestId":"r","results":[{"placeId":"a","name":"A B","address":"Harbour Road 1","cityText":"Haifa"}]}`, nil)
	resp, err := contracts.Decode[contracts.EnrichResponse](data)
	check.That(t, status == http.StatusOK && err == nil && resp.Pending == 0, "%d, %v: %s, want all settled", status, err, data)
	check.That(t, header.Get("Link") == "" && header.Get("Content-Type") == "application/json", "header is %v", header)
}

// TestStoreGone: answers while the server is away, which say so and when to come back.
func TestStoreGone(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := start(t, srv, options{Config: enrich.Config{StoreTimeout: 50 * time.Millisecond}})
	i.ask(t, contracts.EnrichRequest{RequestID: "r", Results: places(1)})
	srv.Stop()
	check.Equal(t, i.ask(t, contracts.EnrichRequest{RequestID: "r", Results: places(2)}).Pending, 2, "pending")
	for _, path := range []string{"", "/events", "/ws"} {
		p, header := i.problem(t, http.MethodGet, "/v1/requests/r"+path, "")
		check.That(t, p.Status == http.StatusServiceUnavailable && header.Get("Retry-After") != "",
			"%q is %+v with Retry-After %q", path, p, header.Get("Retry-After"))
	}
}

func TestTooManySubscriptions(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{Config: enrich.Config{MaxSubscriptions: 1}})
	i.ask(t, contracts.EnrichRequest{RequestID: "r", Results: places(1)})
	resp := check.Must(i.Client().Get(i.URL + "/v1/requests/r/events"))(t)
	defer resp.Body.Close()
	p, header := i.problem(t, http.MethodGet, "/v1/requests/r/events", "")
	check.That(t, p.Status == http.StatusServiceUnavailable && header.Get("Retry-After") == "2",
		"answer is %+v with Retry-After %q", p, header.Get("Retry-After"))
}

// cutConn is a connection that breaks after so many bytes from the server.
type cutConn struct {
	net.Conn

	left int
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, errors.New("cut off")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// cut returns a client each of whose connections breaks after so many bytes; 0 is never.
func cut(after int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil || after == 0 {
				return conn, err
			}
			return &cutConn{conn, after}, nil
		},
	}}
}

// TestDisconnects has clients cut off 100 times each, at any byte, while patches arrive. They come back
// with the id of the last event they saw, to either of two instances. No patch is lost, and none is told again.
func TestDisconnects(t *testing.T) {
	t.Parallel()
	const nPlaces, nClients, cuts = 100, 6, 100
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	srv := natstest.Server(t)
	p := fakeProvider{let: make(chan struct{}, nPlaces)}
	o := options{Config: enrich.Config{Providers: []provider.Provider{p}}, heartbeat: 1e6, works: true}
	instances := []*instance{start(t, srv, o), start(t, srv, o)}
	instances[0].ask(t, contracts.EnrichRequest{RequestID: "req-1", Results: places(nPlaces)})

	var disconnects atomic.Int64
	var wg sync.WaitGroup
	for n := range nClients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			l := newListener()
			for i := 0; !l.over; i++ {
				after := 0
				if i < cuts {
					after = 1 + random.IntN(1+random.IntN(1500)) // of which the header takes 200, and a patch 300
				}
				if i == 0 {
					after = 0 // a client that knows nothing begins with a snapshot
				}
				err := follow(ctx, cut(after), instances[random.IntN(2)].URL, l, i == 0)
				if err != nil {
					t.Errorf("client %d, connection %d: %v", n, i, err)
					return
				}
				if d := disconnects.Add(1); d%(nClients*cuts/nPlaces) == 0 && d/(nClients*cuts/nPlaces) <= nPlaces {
					p.let <- struct{}{} // one more place is found
				}
			}
			l.check(t, places(nPlaces))
			check.That(t, l.resets <= 0, "client %d was reset %d times", n, l.resets)
		})
	}
	wg.Wait()
	d := disconnects.Load()
	check.That(t, d >= nClients*cuts, "%d connections, want at least %d", d, nClients*cuts)
}

// follow reads a stream until it breaks. With first it leaves after one event.
func follow(ctx context.Context, client *http.Client, base string, l *listener, first bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/requests/req-1/events", http.NoBody)
	if err != nil {
		return err
	}
	if l.last != "" {
		req.Header.Set("Last-Event-ID", l.last)
	}
	resp, err := client.Do(req)
	if err != nil {
		return ctx.Err() // cut off early
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		l.over = true
		return nil
	}
	var wrong error
	err = events(resp.Body, func(e event) bool {
		wrong = l.take(e.id, e.kind, []byte(e.data))
		return wrong == nil && !first
	})
	if wrong != nil || !errors.Is(err, errEnd) {
		return wrong
	}
	return ctx.Err()
}
