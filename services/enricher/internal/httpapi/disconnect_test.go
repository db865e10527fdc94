package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

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

// TestDisconnects has clients of both kinds cut off 100 times each, at any byte, while patches arrive. They come back
// with the id of the last event they saw, to either of two instances. No patch is lost, and none is told again.
func TestDisconnects(t *testing.T) {
	t.Parallel()
	const nPlaces, nClients, cuts = 100, 6, 100
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	srv := natstest.Server(t)
	p := far{let: make(chan struct{}, nPlaces)}
	o := options{Config: enrich.Config{Providers: []provider.Provider{p}}, heartbeat: 1e6, works: true}
	instances := []*instance{start(t, srv, o), start(t, srv, o)}
	instances[0].ask(t, contracts.EnrichRequest{RequestID: "req-1", Results: places(nPlaces)})

	var disconnects atomic.Int64
	var wg sync.WaitGroup
	for n := range nClients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			l := newListener()
			follow := sse
			if n%2 == 1 {
				follow = webSocket
			}
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

// sse follows a stream until it breaks. With first it leaves after one event.
func sse(ctx context.Context, client *http.Client, base string, l *listener, first bool) error {
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
		wrong = l.hear(e.id, e.kind, []byte(e.data))
		return wrong == nil && !first
	})
	if wrong != nil || !errors.Is(err, errEnd) {
		return wrong
	}
	return ctx.Err()
}

func webSocket(ctx context.Context, client *http.Client, base string, l *listener, first bool) error {
	address := "ws" + strings.TrimPrefix(base, "http") + "/v1/requests/req-1/ws?last_event_id=" + url.QueryEscape(l.last)
	conn, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return ctx.Err()
	}
	defer conn.CloseNow()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				l.over = true
			}
			return ctx.Err()
		}
		var frame struct {
			Type    string `json:"type"`
			EventID string `json:"eventId"`
		}
		if err := json.Unmarshal(data, &frame); err != nil {
			return err
		}
		if err := l.hear(frame.EventID, frame.Type, data); err != nil || first {
			return err
		}
	}
}
