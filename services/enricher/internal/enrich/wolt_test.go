package enrich

import (
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

// newWolt starts a stand-in for Wolt, off the network, and a client of it.
func newWolt(t *testing.T, mutate ...func(*wolt.Config)) (*wolttest.Server, *wolt.Client) {
	t.Helper()
	server, err := wolttest.Start(wolttest.Config{InMemory: true, Venues: []wolttest.Venue{{
		ID: "000000000000000000000001", Slug: "pizza-house", Name: "Pizza House", Address: "Dizengoff 50", City: "Tel Aviv",
		Country: "ISR", Lat: 32.0801, Lon: 34.7801,
	}}})
	check.OK(t, err)
	cfg := wolt.Config{BaseURL: server.URL(), Burst: 100, Rate: 100, Transport: server.Transport(), Turn: Turn(wolt.Name)}
	for _, m := range mutate {
		m(&cfg)
	}
	client := check.Must(wolt.New(cfg))(t)
	t.Cleanup(func() {
		client.Close()
		check.Is(t, server.Close(), nil)
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
			i.told(t, "req-0")
			server.FailAlways(fault)
			i.ask(t, "req-1", pizzaHouse())
			got := follow(t, i, "req-1", time.Hour)["ChIJ123"]
			check.Require(t, got.Status == contracts.StatusPending && got.Reason == contracts.ReasonProviderError && got.URL == nil,
				"told %+v, want PENDING because of the provider", got)
			elapse(time.Second)
			check.Says(t, deadLetter(t, i).Error, "wolt: ")
			stats := i.Stats()
			check.That(t, stats.NotFound == 1 && stats.Errors == 1, "stats are %+v, want one error beside the first answer", stats)
			server.Recover()
			elapse(61 * time.Second) // the result is kept for a minute, and no pause of the client's is longer
			i.ask(t, "req-2", pizzaHouse())
			got = follow(t, i, "req-2", time.Hour)["ChIJ123"]
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
			wantStatus(t, follow(t, i, "req-1", time.Hour)["ChIJ123"], contracts.StatusFound)
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
		server.Fail(wolttest.RateLimited("90"))
		began := time.Now()
		i.ask(t, "req-1", pizzaHouse())
		elapse(89 * time.Second)
		check.Same(t, "calls within the pause", len(server.Calls()), 1)
		wantStatus(t, follow(t, i, "req-1", time.Hour)["ChIJ123"], contracts.StatusFound)
		took := time.Since(began)
		check.That(t, took >= 90*time.Second && took <= 95*time.Second, "found after %s, want right after 90 s", took)
		ever, _ := i.jobs(t)
		check.That(t, ever == 1, "%d jobs were queued, want 1", ever)
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
		for id, got := range follow(t, i, "req-1", time.Hour) {
			check.That(t, got.Status == contracts.StatusNotFound, "told %+v of %s, want NOT_FOUND", got, id)
		}
		took := time.Since(began)
		check.Require(t, took >= limitedFor, "took %s: there was no backlog", took)
		stop() // who listens may be told before the worker has counted
		check.Same(t, "dead letters: nobody failed", i.letters(t), 0)
		if stats := i.Stats(); stats.NotFound != int64(total) || stats.ProviderCalls != int64(total) || stats.Jobs != int64(total) {
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
		wantStatus(t, i.told(t, "req-1")["ChIJ123"], contracts.StatusNotFound)
	})
}
