package enricher_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

// slowWolt is a stand-in for Wolt that counts: when each call came, and how many were under way.
type slowWolt struct {
	*httptest.Server

	mu    sync.Mutex
	came  []time.Time
	most  int
	under int
}

func newSlowWolt(t *testing.T, slow time.Duration, moved func()) *slowWolt {
	t.Helper()
	behind := check.Must(wolttest.Start(wolttest.Config{}))(t)
	t.Cleanup(func() {
		check.Is(t, behind.Close(), nil)
	})
	to := check.Must(url.Parse(behind.URL()))(t)
	proxy, w := httputil.NewSingleHostReverseProxy(to), &slowWolt{}
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // the calls of a killed instance are cancelled
	w.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		defer w.enter()()
		moved()
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-timer.C:
			proxy.ServeHTTP(out, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *slowWolt) enter() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came = append(w.came, time.Now())
	w.under++
	w.most = max(w.most, w.under)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.under--
	}
}

// await waits until there have been n calls.
func (w *slowWolt) await(t *testing.T, n int) {
	t.Helper()
	for ticker := time.NewTicker(10 * time.Millisecond); ; <-ticker.C {
		w.mu.Lock()
		got := len(w.came)
		w.mu.Unlock()
		if got >= n {
			ticker.Stop()
			return
		}
		check.Require(t, t.Context().Err() == nil, "%d calls, want %d", got, n)
	}
}

// TestKilledInstanceLeavesTheRateAsItIs has three instances look places up, one of which is killed in the middle. Over all of
// them the far side never gets more calls than its rate, nor more at once than searches that may be under way.
func TestKilledInstanceLeavesTheRateAsItIs(t *testing.T) {
	t.Parallel()
	const (
		rate, burst, searches = 4, 2, 10    // of the default Timeout and MaxCalls
		late                  = time.Second // how late a busy machine may make a call after its turn
	)
	ctx, moved := untilStalled(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newSlowWolt(t, 3*time.Second, moved)
	var started []*crash.Process
	var urls []string
	for _, name := range []string{"a", "b", "c"} {
		p := instances.Start(t, instance{Name: name, NATS: srv.URL(), Provider: far.URL, WoltRate: rate})
		started, urls = append(started, p), append(urls, p.Line())
	}
	req := contracts.EnrichRequest{RequestID: "r", Results: places(20), WaitMS: int(contracts.MaxWait / time.Millisecond)}
	for i := range req.Results {
		req.Results[i].Location = &contracts.Location{Lat: 32.08, Lng: 34.78}
	}
	body := check.Must(json.Marshal(req))(t)
	httpClient, killed := newHTTP(t), make(chan struct{})
	go func() {
		defer close(killed)
		far.await(t, 15)
		started[1].Kill()
	}()
	for pending := true; pending; {
		r := check.Must(http.NewRequestWithContext(ctx, http.MethodPost, urls[0]+"/v1/enrich", bytes.NewReader(body)))(t)
		answer, err := httpClient.Do(r)
		check.OK(t, err)
		var resp contracts.EnrichResponse
		err = json.NewDecoder(answer.Body).Decode(&resp)
		closeErr := answer.Body.Close()
		check.Require(t, err == nil && closeErr == nil, "%v %v", err, closeErr)
		pending = resp.Pending > 0
		for _, place := range resp.Results {
			state, _ := place.State(contracts.ProviderWolt)
			check.That(t, pending || state.Status == contracts.StatusNotFound, "%s is %+v, want NOT_FOUND", place.PlaceID, state)
		}
	}
	<-killed
	far.mu.Lock()
	defer far.mu.Unlock()
	check.That(t, far.most <= searches, "%d calls were under way, want at most %d", far.most, searches)
	slices.SortFunc(far.came, time.Time.Compare)
	for i, first := range far.came {
		for j, last := range far.came[i:] {
			allowed := burst + int((last.Sub(first)+late)*rate/time.Second) + 1
			check.Require(t, j < allowed, "%d calls in %s, want at most %d", j+1, last.Sub(first), allowed)
		}
	}
	t.Logf("%d calls in %s, %d at once", len(far.came), far.came[len(far.came)-1].Sub(far.came[0]), far.most)
}
