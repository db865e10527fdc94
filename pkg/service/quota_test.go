package service_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// counter is a router with quotas, whose routes answer when they are told.
type counter struct {
	*testing.T

	answer  chan struct{}
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
	c.router.Handle("GET /slow", access.All(access.Read), wait)
	c.router.HandleStream("GET /stream", access.All(access.Read), wait)
	c.router.HandleSocket("GET /socket", access.All(access.Read), wait)
	return c
}

// ask returns "200", or the status, the code of the problem and Retry-After.
func (c *counter) ask(path, from, key string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Host, r.RemoteAddr = "localhost", from
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
func (c *counter) hold(path, from string) {
	c.waiting.Go(func() { c.want(path, from, "", "200") })
	synctest.Wait()
}

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only

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
		c.want("/now", bob, "", "200")
		elapse(250 * time.Millisecond)
		c.want("/now", ada, "", "200")
		c.want("/now", ada, "", overRate)
		elapse(time.Second)
		c.hold("/slow", ada)
		c.hold("/slow", ada)
		c.want("/now", ada, "", overReqs)
		c.want("/now", bob, "", "200")
		elapse(time.Second)
		c.hold("/stream", ada)
		c.want("/stream", ada, "", overStreams)
		c.want("/socket", ada, "", overStreams)
		c.hold("/stream", bob)
		close(c.answer)
		c.waiting.Wait()
		elapse(time.Second)
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
		var err error
		if secrets[i], err = access.Add(file, access.Key{Name: name, Scopes: []access.Scope{access.Read}}); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := access.Open("shop", file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
		elapse(time.Second)
		c.want("/now", bob, "", overReqs)
		close(c.answer)
		c.waiting.Wait()
	})
}
