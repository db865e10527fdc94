package enrich

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/expediter-io/expediter/services/enricher/provider/remote"
)

// remoteURL is in every link that the provider answers with.
const remoteURL = "https://venues.test/pizza-house"

// stub is the service of a remote provider, off the network. It answers with answer, or else with the venue of Pizza House.
type stub struct {
	mu     sync.Mutex
	answer func(r *http.Request) (*http.Response, error)
	calls  int
}

func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.calls++
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(r)
	}
	return reply(http.StatusOK, `{"venues":[{"name":"Pizza House","address":"Dizengoff 50","city":"Tel Aviv","url":"`+remoteURL+`"}]}`)(r)
}

// set sets the answer to all calls from now on.
func (s *stub) set(answer func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *stub) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// reply answers with a status, a JSON body and headers.
func reply(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

var none = reply(http.StatusOK, `{"venues":[]}`)

// faults are one of each kind that a provider has.
var faults = map[string]func(*http.Request) (*http.Response, error){
	"429": reply(http.StatusTooManyRequests, "", "Retry-After", "7"),
	"401": reply(http.StatusUnauthorized, ""),
	"404": reply(http.StatusNotFound, ""),
	"500": reply(http.StatusInternalServerError, ""),
	"{":   reply(http.StatusOK, "{"),
	"hang": func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	},
}

// newRemote returns a remote provider that asks a transport.
func newRemote(t *testing.T, rate float64, transport http.RoundTripper) *remote.Client {
	t.Helper()
	return check.Must(remote.New(remote.Config{
		Rate: rate, Transport: transport, Turn: Turn(contracts.ProviderWolt), URL: "http://127.0.0.1",
	}))(t)
}

func pizzaHouse() []contracts.Restaurant {
	return []contracts.Restaurant{{PlaceID: "ChIJ123", Name: "Pizza House", Address: "Dizengoff 50", CityText: "Tel Aviv"}}
}

// TestBadDaysOfAProvider has each fault answer everything for as long as the service tries. It never becomes NOT_FOUND, and the
// place is found once the fault has passed.
func TestBadDaysOfAProvider(t *testing.T) {
	for name, fault := range faults {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			far := &stub{}
			i := newInstance(t, srv, newRemote(t, 100, far))
			i.work(t)
			far.set(fault)
			i.ask(t, "req-1", pizzaHouse())
			got := outcomes(t, i, "req-1", time.Hour)["ChIJ123"]
			check.Require(t, got.Status == contracts.StatusPending && got.Reason == contracts.ReasonProviderError && got.URL == nil,
				"told %+v, want PENDING because of the provider", got)
			elapse(time.Second)
			check.Says(t, deadLetter(t, i).Error, "wolt: ")
			check.Equal(t, map[contracts.Outcome]int64{contracts.OutcomeError: 1}, i.Stats().Outcomes)
			far.set(nil)
			elapse(61 * time.Second) // the result is kept for a minute, and no pause of the client's is longer
			i.ask(t, "req-2", pizzaHouse())
			got = outcomes(t, i, "req-2", time.Hour)["ChIJ123"]
			check.That(t, got.Status == contracts.StatusFound && got.URL != nil && *got.URL == remoteURL,
				"after the fault told %+v, want FOUND with a link", got)
		})
	}
}

// TestBacklogAtTheRate: many more places than the rate lets be looked up in the time for which a provider's limits are waited for.
// Each comes to its turn, without an attempt used on waiting or a call made in vain. An empty list is the answer NOT_FOUND.
func TestBacklogAtTheRate(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		far := &stub{answer: none}
		i := newInstance(t, srv, newRemote(t, 0.15, far))
		stop := i.work(t, func(c *worker.Config) { c.Concurrency = 32 })
		list, began := places(100), time.Now()
		total := len(list)
		i.ask(t, "req-1", list)
		for id, got := range outcomes(t, i, "req-1", time.Hour) {
			check.That(t, got.Status == contracts.StatusNotFound, "told %+v of %s, want NOT_FOUND", got, id)
		}
		took := time.Since(began)
		check.Require(t, took >= limitedFor, "took %s: there was no backlog", took)
		stop() // the subscriber may have the event before the worker has counted
		check.Same(t, "dead letters: nobody failed", i.letters(t), 0)
		stats, all := i.Stats(), int64(total)
		check.That(t, stats.Outcomes[contracts.OutcomeNotFound] == all && stats.ProviderCalls == all && stats.Jobs == all,
			"stats are %+v, want %d jobs, searches and answers", stats, total)
		check.Same(t, "calls", far.called(), total)
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
			far := &counting{next: &stub{answer: none}, slow: 7900 * time.Millisecond}
			var all []*instance
			var limit int
			for range 3 {
				client := newRemote(t, rate, far)
				limit = client.Limits().Searches
				i := newInstance(t, srv, client)
				i.cutOff = dies && len(all) == 1
				i.work(t)
				all = append(all, i)
			}
			list := places(40)
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
			sub := check.Must(i.Subscribe(t.Context(), fmt.Sprintf("req-%d", n), ""))(t)
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
