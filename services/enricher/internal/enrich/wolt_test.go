package enrich

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
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

// newWolt starts a stand-in for Wolt, off the network, and a client of it.
func newWolt(t *testing.T, mutate ...func(*wolt.Config)) (*wolttest.Server, *wolt.Client) {
	t.Helper()
	server := wolttest.Start(wolttest.Config{InMemory: true, Venues: []wolttest.Venue{{
		ID: "000000000000000000000001", Slug: "pizza-house", Name: "Pizza House", Address: "Dizengoff 50", City: "Tel Aviv",
		Country: "ISR", Lat: 32.0801, Lon: 34.7801,
	}}})
	cfg := wolt.Config{BaseURL: server.URL(), Burst: 100, Rate: 100, Transport: server.Transport(), Turn: Turn(wolt.Name)}
	for _, m := range mutate {
		m(&cfg)
	}
	client := check.Must(wolt.New(cfg))(t)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return server, client
}

func pizzaHouse() []contracts.Restaurant {
	return []contracts.Restaurant{{
		PlaceID: "ChIJ123", Name: "Pizza House", Address: "Dizengoff 50", CityText: "Tel Aviv", Location: &contracts.Location{Lat: 32.08, Lng: 34.78},
	}}
}

// TestWoltsBadDays has each fault answer everything for as long as the service tries. It never becomes NOT_FOUND, and
// the place is found once the fault has passed.
func TestWoltsBadDays(t *testing.T) {
	for _, fault := range wolttest.Faults() {
		natstest.RunBubble(t, fault.Name, func(t *testing.T, srv *natsrun.Server) {
			server, client := newWolt(t)
			i := newInstance(t, srv, client)
			i.work(t)
			other := pizzaHouse() // the list of cities is fetched once, in good times
			other[0].PlaceID, other[0].Name = "other", "Sushi Bar"
			i.ask(t, "req-0", other)
			i.outcomes(t, "req-0")
			server.FailAlways(fault)
			i.ask(t, "req-1", pizzaHouse())
			got := outcomes(t, i, "req-1", time.Hour)["ChIJ123"]
			check.Require(t, got.Status == contracts.StatusPending && got.Reason == contracts.ReasonProviderError && got.URL == nil,
				"told %+v, want PENDING because of the provider", got)
			elapse(time.Second)
			check.Says(t, deadLetter(t, i).Error, "wolt: ")
			want := map[contracts.Outcome]int64{contracts.OutcomeNotFound: 1, contracts.OutcomeError: 1} // beside the first answer
			check.Equal(t, want, i.Stats().Outcomes)
			server.Recover()
			elapse(61 * time.Second) // the result is kept for a minute, and no pause of the client's is longer
			i.ask(t, "req-2", pizzaHouse())
			got = outcomes(t, i, "req-2", time.Hour)["ChIJ123"]
			check.That(t, got.Status == contracts.StatusFound && got.URL != nil && strings.HasSuffix(*got.URL, "/tel-aviv/restaurant/pizza-house"),
				"after the fault told %+v, want FOUND with a link", got)
		})
	}
}

// TestWoltsBadMoment: a fault that passes before the last attempt is noticed by nobody, unless it says that the client
// is set up wrongly.
func TestWoltsBadMoment(t *testing.T) {
	for _, fault := range wolttest.Faults() {
		if fault.Name == "404" {
			continue
		}
		natstest.RunBubble(t, fault.Name, func(t *testing.T, srv *natsrun.Server) {
			server, client := newWolt(t)
			i := newInstance(t, srv, client)
			i.work(t)
			server.Fail(fault)
			i.ask(t, "req-1", pizzaHouse())
			wantStatus(t, outcomes(t, i, "req-1", time.Hour)["ChIJ123"], contracts.StatusFound)
			check.Same(t, "dead letters", i.letters(t), 0)
		})
	}
}

// TestWoltRetryAfter: no call is made before the time that a 429 asks for.
func TestWoltRetryAfter(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		server, client := newWolt(t)
		i := newInstance(t, srv, client)
		i.work(t)
		server.Fail(wolttest.StatusRetryAfter(http.StatusTooManyRequests, "90"))
		began := time.Now()
		i.ask(t, "req-1", pizzaHouse())
		elapse(89 * time.Second)
		check.Same(t, "calls within the pause", len(server.Calls()), 1)
		wantStatus(t, outcomes(t, i, "req-1", time.Hour)["ChIJ123"], contracts.StatusFound)
		took := time.Since(began)
		check.That(t, took >= 90*time.Second && took <= 95*time.Second, "found after %s, want right after 90 s", took)
		i.wantJobs(t, 1)
	})
}

// TestWoltBacklog: many more places than the rate lets be looked up in the time for which a provider's limits are waited
// for. Each comes to its turn, without an attempt used on waiting or a call made in vain.
func TestWoltBacklog(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const rate, callsOfPlace = 0.45, 3
		server, client := newWolt(t, func(c *wolt.Config) { c.Rate, c.Burst = rate, 2 })
		i := newInstance(t, srv, client)
		stop := i.work(t, func(c *worker.Config) { c.Concurrency = 32 })
		list, began := places(100), time.Now()
		total := len(list)
		for k := range list {
			list[k].Location = &contracts.Location{Lat: 32.08, Lng: 34.78}
		}
		i.ask(t, "req-1", list)
		for id, got := range outcomes(t, i, "req-1", time.Hour) {
			check.That(t, got.Status == contracts.StatusNotFound, "told %+v of %s, want NOT_FOUND", got, id)
		}
		took := time.Since(began)
		check.Require(t, took >= limitedFor, "took %s: there was no backlog", took)
		stop() // the subscriber may have the event before the worker has counted
		check.Same(t, "dead letters: nobody failed", i.letters(t), 0)
		stats, all := i.Stats(), int64(total)
		if stats.Outcomes[contracts.OutcomeNotFound] != all || stats.ProviderCalls != all || stats.Jobs != all {
			t.Errorf("stats are %+v, want %d jobs, searches and answers", stats, total)
		}
		n := len(server.Calls())
		check.That(t, n == 1+total*callsOfPlace, "%d calls, want %d for each place, and one for the cities", n, callsOfPlace)
	})
}

// TestWoltHasNoSuchPlace: the empty answer of a good day is an answer.
func TestWoltHasNoSuchPlace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		server, client := newWolt(t)
		server.SetVenues(nil)
		i := newInstance(t, srv, client)
		i.work(t)
		i.ask(t, "req-1", pizzaHouse())
		wantStatus(t, i.outcomes(t, "req-1")["ChIJ123"], contracts.StatusNotFound)
	})
}

// counting is the far side as it is seen from all instances: when each call came, and how many were under way.
type counting struct {
	next http.RoundTripper
	slow time.Duration // the least time of each call

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
			server := wolttest.Start(wolttest.Config{InMemory: true})
			t.Cleanup(server.Close)
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
			for id, got := range outcomes(t, all[0], "req-1", time.Hour) {
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
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		check.Require(t, len(attempts) == 2 && p.total() == 2, "%d attempts asked %d times, want two", len(attempts), p.total())
		first, second := <-attempts, <-attempts
		check.That(t, first == 1 && second == 1, "attempts %d and %d, want the first twice", first, second)
		if n := len(i.log.events("wolt_provider_fail")); n != 0 || i.letters(t) != 0 {
			t.Errorf("%d failures logged, %d dead letters: the provider did nothing wrong", n, i.letters(t))
		}
	})
}

// TestBacklogLongerThanTheClaim asks for a place again after its claim has expired, twice, while its job waits: nobody
// works. The place is queued once; the worker that comes at last adopts the latest claim, and asks the provider once.
func TestBacklogLongerThanTheClaim(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
		began := time.Now()
		for n, at := range []time.Duration{61 * time.Second, 130 * time.Second} {
			elapse(at - time.Since(began))
			resp := i.ask(t, fmt.Sprintf("req-%d", n+1), []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
			got := len(i.log.events("wolt_lock_acquired"))
			check.Require(t, got == n+2, "%d claims were taken after %s, want %d: the earlier one has expired", got, at, n+2)
			ever, now := i.jobs(t)
			check.Require(t, ever == 1 && now == 1, "after %s %d jobs were queued and %d are, want one and the same", at, ever, now)
		}
		reasons := i.log.reasons()
		check.That(t, len(reasons) == 1 && reasons[0] == "lock_held", "skipped for %q, want that the place is queued already", reasons)
		if entry, err := i.flight.Get(t.Context(), pizzaKey); err != nil || entry.State != flight.Pending || !entry.Handoff {
			t.Errorf("the latest claim is %+v, %v, want one that the job may adopt", entry, err)
		}
		i.work(t)
		for n := range 3 {
			wantStatus(t, i.outcomes(t, fmt.Sprintf("req-%d", n))["id-Pizza-House"], contracts.StatusFound)
		}
		check.Same(t, "the provider was asked, times", p.total(), 1)
		elapse(time.Second) // the job is confirmed after the result
		ever, now := i.jobs(t)
		check.That(t, ever == 1 && now == 0, "%d jobs were queued and %d are, want one that is done", ever, now)
	})
}

// TestBacklogBehindABlockedProvider is the same with a worker whose only entry is taken: the provider holds another
// place until the attempt times out, again and again.
func TestBacklogBehindABlockedProvider(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if place.Name != "Pizza House" {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return venueOf(place)
		}}
		i := newInstance(t, srv, p)
		i.work(t, func(c *worker.Config) { c.Concurrency = 1 })
		for n := range 5 { // 30 s of the only entry each
			i.ask(t, fmt.Sprintf("slow-%d", n), []contracts.Restaurant{place(fmt.Sprintf("Slow Kitchen %d", n))})
		}
		began := time.Now()
		for n, at := range []time.Duration{time.Second, 62 * time.Second, 130 * time.Second} {
			elapse(at - time.Since(began))
			i.ask(t, fmt.Sprintf("req-%d", n), []contracts.Restaurant{place("Pizza House")})
		}
		n := p.count("Pizza House")
		check.Require(t, n == 0, "the place was searched for after %s: there was no backlog", time.Since(began))
		i.wantJobs(t, 6)
		for n := range 3 {
			sub, err := i.Subscribe(t.Context(), fmt.Sprintf("req-%d", n), "")
			check.OK(t, err)
			for !sub.Over() {
				update := check.Must(sub.Next(t.Context()))(t)
				if patch, is := update.Body.(contracts.ResultPatch); is {
					wantStatus(t, patch.Patch.Providers["wolt"], contracts.StatusFound)
				}
			}
			sub.Close()
		}
		check.Same(t, "the place was searched for, times", p.count("Pizza House"), 1)
	})
}
