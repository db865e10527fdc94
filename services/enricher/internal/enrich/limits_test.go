package enrich

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

// counting is the far side as it is seen from all instances: when each call came, and how many were under way.
type counting struct {
	next http.RoundTripper
	slow time.Duration // what each call takes at least

	mu    sync.Mutex
	came  []time.Time
	most  int
	under int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.came = append(c.came, time.Now())
	c.under++
	c.most = max(c.most, c.under)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.under--
		c.mu.Unlock()
	}()
	if !pause(r.Context(), c.slow) {
		return nil, r.Context().Err()
	}
	return c.next.RoundTrip(r)
}

// check fails unless in every time there were no more calls than the rate allows in it, and the burst.
func (c *counting) check(t *testing.T, gap time.Duration, burst int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.came, time.Time.Compare)
	for i, first := range c.came {
		for j, last := range c.came[i:] {
			if allowed := burst + int(last.Sub(first)/gap) + 1; j+1 > allowed {
				t.Fatalf("%d calls in %s, want at most %d", j+1, last.Sub(first), allowed)
			}
		}
	}
}

// TestProviderIsAskedNoFasterByMoreInstances has three instances look places up, one of which is cut off in the middle. The
// far side never gets more calls than its rate, nor more at once than searches that may be under way; no attempt is used on
// waiting.
func TestProviderIsAskedNoFasterByMoreInstances(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies=%t", dies), func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				const rate, burst = 2, 2
				server, err := wolttest.Start(wolttest.Config{InMemory: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := server.Close(); err != nil {
						t.Error(err)
					}
				})
				far := &counting{next: server.Transport(), slow: 3 * time.Second}
				var all []*instance
				var limit int
				for range 3 {
					client, err := wolt.New(wolt.Config{
						BaseURL: server.URL(), Burst: burst, Rate: rate, Transport: far, Turn: Turn(wolt.Name),
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(client.Close)
					limit = client.Limits().Searches
					i := newInstance(t, srv, client)
					i.cutOff = dies && len(all) == 1
					i.work(t)
					all = append(all, i)
				}
				list := places(40)
				for k := range list {
					list[k].Location = &contracts.Location{Lat: 32.08, Lng: 34.78}
				}
				all[0].ask(t, "req-1", list)
				elapse(20 * time.Second)
				if dies {
					all[1].js.Conn().Close()
				}
				for id, got := range follow(t, all[0], "req-1", time.Hour) {
					if got.Status != contracts.StatusNotFound {
						t.Errorf("told %+v of %s, want NOT_FOUND", got, id)
					}
				}
				far.check(t, time.Second/rate, burst)
				if far.most > limit || far.most < limit-1 {
					t.Errorf("%d calls were under way, want at most %d, and as many as it can be", far.most, limit)
				}
				for _, i := range all {
					if n := len(i.log.events("wolt_provider_fail")); n != 0 {
						t.Errorf("%d failures logged: nobody failed", n)
					}
				}
				if n := all[0].letters(t); n != 0 {
					t.Errorf("%d dead letters", n)
				}
			})
		})
	}
}
