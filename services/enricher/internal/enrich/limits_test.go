package enrich

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
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
	if !pause.For(r.Context(), c.slow) {
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
			allowed := burst + int(last.Sub(first)/gap) + 1
			check.Require(t, j < allowed, "%d calls in %s, want at most %d", j+1, last.Sub(first), allowed)
		}
	}
}

// TestProviderIsAskedNoFasterByMoreInstances has three instances look places up, one of which is cut off in the middle. The
// far side never gets more calls than its rate, nor more at once than searches that may be under way; no attempt is used on
// waiting.
func TestProviderIsAskedNoFasterByMoreInstances(t *testing.T) {
	for _, dies := range []bool{false, true} {
		natstest.RunBubble(t, fmt.Sprintf("dies=%t", dies), func(t *testing.T, srv *natsrun.Server) {
			const rate, burst = 2, 2
			server, err := wolttest.Start(wolttest.Config{InMemory: true})
			check.OK(t, err)
			t.Cleanup(func() {
				check.Is(t, server.Close(), nil)
			})
			far := &counting{next: server.Transport(), slow: 3 * time.Second}
			var all []*instance
			var limit int
			for range 3 {
				client, err := wolt.New(wolt.Config{
					BaseURL: server.URL(), Burst: burst, Rate: rate, Transport: far, Turn: Turn(wolt.Name),
				})
				check.OK(t, err)
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
				check.That(t, got.Status == contracts.StatusNotFound, "told %+v of %s, want NOT_FOUND", got, id)
			}
			far.check(t, time.Second/rate, burst)
			check.That(t, far.most <= limit && far.most >= limit-1,
				"%d calls were under way, want at most %d, and as many as it can be", far.most, limit)
			for _, i := range all {
				check.Same(t, "failures logged: nobody failed", len(i.log.events("wolt_provider_fail")), 0)
			}
			check.Same(t, "dead letters", all[0].letters(t), 0)
		})
	}
}

// oneSearch is a provider that may be asked once at a time.
type oneSearch struct{ *far }

func (oneSearch) Limits() provider.Limits {
	return provider.Limits{Burst: 1, Gap: time.Millisecond, Searches: 1}
}

// TestPermitLostInMidSearch: the lease of the worker is deleted, so its search loses the permit, and fails for good because of
// that. No failure of the provider is logged or stored, the attempt does not count, and the place is looked up.
func TestPermitLostInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		begun, ended := make(chan struct{}), make(chan error, 1)
		p := oneSearch{&far{}}
		p.search = func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if p.total() > 1 {
				return venueOf(place)
			}
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, &provider.Error{Kind: provider.KindUnsupported, Provider: contracts.ProviderWolt}
		}
		i := newInstance(t, srv, p)
		attempts := make(chan int, 10)
		i.work(t, func(c *worker.Config) { c.Hooks.Started = func(info worker.Info) { attempts <- info.Attempt } })
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-begun
		stream, err := i.js.Stream(t.Context(), "KV_"+contracts.BucketJobs)
		if err == nil {
			err = stream.Purge(t.Context())
		}
		check.OK(t, err)
		err = <-ended
		check.That(t, errors.As(err, new(*worker.LimitLostError)), "the search ended with %v, want a LimitLostError", err)
		wantStatus(t, i.told(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		if len(attempts) != 2 || p.total() != 2 {
			t.Fatalf("%d attempts asked %d times, want two", len(attempts), p.total())
		}
		first, second := <-attempts, <-attempts
		check.That(t, first == 1 && second == 1, "attempts %d and %d, want the first twice", first, second)
		if n := len(i.log.events("wolt_provider_fail")); n != 0 || i.letters(t) != 0 {
			t.Errorf("%d failures logged, %d dead letters: the provider did nothing wrong", n, i.letters(t))
		}
	})
}
