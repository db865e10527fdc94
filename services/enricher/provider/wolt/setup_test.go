package wolt_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// telAviv is where the tests search.
var telAviv = match.Point{Lat: 32.08, Lng: 34.78}

// pizzaHouse is a place that the venues hold.
var pizzaHouse = match.Place{Name: "Pizza House", City: "Tel Aviv", Location: &telAviv}

// venues returns the venues of the fake server unless a test sets others.
func venues() []wolttest.Venue {
	return []wolttest.Venue{
		{
			ID: "000000000000000000000001", Slug: "pizza-house", Name: "Pizza House", Address: "Dizengoff 50", City: "Tel Aviv",
			Country: "ISR", Lat: 32.0801, Lon: 34.7801, Names: map[string]string{"he": "פיצה האוס"},
		},
		{
			ID: "000000000000000000000002", Slug: "pizza-prego", Name: "Pizza Prego", Address: "Ibn Gabirol 1", City: "Tel Aviv",
			Country: "ISR", Lat: 32.0811, Lon: 34.7811,
		},
		{
			ID: "000000000000000000000003", Slug: "pizza-flour", Name: "House of Pizza Flour", Country: "ISR",
			Lat: 32.0821, Lon: 34.7821, ProductLine: "retail",
		},
		{
			ID: "000000000000000000000004", Slug: "sushi-bar", Name: "Sushi Bar", Country: "ISR", Lat: 32.0831, Lon: 34.7831,
		},
	}
}

// setup starts a server on loopback and a client that asks it as fast as it can.
func setup(t *testing.T, mutate ...func(*wolt.Config)) (*wolttest.Server, *wolt.Client) {
	t.Helper()
	return start(t, wolttest.Config{Venues: venues()}, mutate...)
}

// bubble runs a test under fake time, against a server off the network.
func bubble(t *testing.T, test func(t *testing.T, server *wolttest.Server, client *wolt.Client), mutate ...func(*wolt.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		server, client := start(t, wolttest.Config{InMemory: true, Venues: venues()}, mutate...)
		test(t, server, client)
	})
}

func start(t *testing.T, config wolttest.Config, mutate ...func(*wolt.Config)) (*wolttest.Server, *wolt.Client) {
	t.Helper()
	server := wolttest.Start(config)
	cfg := wolt.Config{BaseURL: server.URL(), Burst: 1000, Confident: exactName, Rate: 1e6, Transport: server.Transport()}
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

// exactName reports whether a venue has the very name of the place: a matcher whose result tests can foresee.
func exactName(place match.Place, venues []provider.Venue) bool {
	for _, v := range venues {
		if v.Name == place.Name {
			return true
		}
	}
	return false
}

func never(match.Place, []provider.Venue) bool { return false }

func nan() float64 { return math.NaN() }

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // Inside a bubble only.

func TestNewNeedsABaseURL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		url string
		ok  bool
	}{
		"missing":          {"", false},
		"https":            {"https://wolt.example.com/api", true},
		"loopback name":    {"http://localhost:8080", true},
		"loopback address": {"http://127.0.0.1:8080/", true},
		"loopback of IPv6": {"http://[::1]:8080", true},
		"plain http":       {"http://wolt.example.com", false},
		"another scheme":   {"file:///etc/passwd", false},
		"no scheme":        {"wolt.example.com", false},
		"no host":          {"https:///v1", false},
		"password":         {"https://me:secret@wolt.example.com", false},
		"query":            {"https://wolt.example.com/?a=b", false},
		"nonsense":         {"https://wolt example.com:secret/", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := wolt.New(wolt.Config{BaseURL: test.url})
			if test.ok {
				check.OK(t, err)
				client.Close()
				return
			}
			wantFailure(t, err, provider.KindMisconfigured)
			check.That(t, !strings.Contains(err.Error(), "secret"), "error %q tells a secret", err)
		})
	}
}

func TestNewReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := wolt.New(wolt.Config{
		BaseURL: "ftp://x", Burst: -1, MaxCalls: -1, Rate: math.NaN(), Timeout: -1,
	})
	wantFailure(t, err, provider.KindMisconfigured)
	for _, name := range []string{"BaseURL", "Burst", "MaxCalls", "Rate is", "Timeout"} {
		check.That(t, strings.Contains(err.Error(), name), "error does not name %s:\n%v", name, err)
	}
	check.That(t, !strings.Contains(err.Error(), "\n\r") && !provider.Temporary(err), "error = %q, want a permanent one", err)
}

func TestCitiesAreFetchedOnceInTheirTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				check.Is(t, check.Err(client.Search(t.Context(), pizzaHouse)), nil)
			})
		}
		group.Wait()
		wantCityCalls(t, server, 1)
		elapse(24*time.Hour - time.Nanosecond)
		search(t, client)
		wantCityCalls(t, server, 1)
		elapse(time.Nanosecond)
		search(t, client)
		wantCityCalls(t, server, 2)
	})
}

func TestOldCitiesAreUsedWhenTheyCannotBeRefreshed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		search(t, client)
		elapse(25 * time.Hour)
		server.Fail(wolttest.Status(http.StatusInternalServerError))
		search(t, client)
		wantCityCalls(t, server, 2)
		// Not asked again for a while, then it is.
		search(t, client)
		wantCityCalls(t, server, 2)
		elapse(time.Minute)
		search(t, client)
		wantCityCalls(t, server, 3)
		search(t, client)
		wantCityCalls(t, server, 3)
	})
}

func TestFailureToFetchTheCitiesIsShared(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.Fail(wolttest.Hang())
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				_, err := client.Search(t.Context(), pizzaHouse)
				wantFailure(t, err, provider.KindTimeout)
			})
		}
		group.Wait()
		wantCityCalls(t, server, 1)
		search(t, client)
		wantCityCalls(t, server, 2)
	})
}

// TestCallerWhoGivesUpFetchingTheCitiesHarmsNobody has one caller fetch and go while
// another waits.
func TestCallerWhoGivesUpFetchingTheCitiesHarmsNobody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.Fail(wolttest.Hang())
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			_, err := client.Search(ctx, pizzaHouse)
			wantFailure(t, err, provider.KindCanceled)
		})
		synctest.Wait()
		group.Go(func() { search(t, client) })
		elapse(time.Second)
		cancel()
		group.Wait()
		wantCityCalls(t, server, 2)
	})
}

func TestWaitForTheCitiesEndsWithItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.Fail(wolttest.Hang())
		var group sync.WaitGroup
		group.Go(func() {
			_, err := client.Search(t.Context(), pizzaHouse)
			wantFailure(t, err, provider.KindTimeout)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Search(ctx, pizzaHouse)
		wantFailure(t, err, provider.KindTimeout)
		group.Wait()
	})
}

func TestListsOfCitiesThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"none":        `{"results":[]}`,
		"null":        `null`,
		"unusable":    `{"results":[{"slug":"x","country_code_alpha3":"ISR"},{"slug":"..","location":{"coordinates":[34,32]}},7]}`,
		"too many":    `{"results":[` + strings.Repeat("1,", 5000) + `1]}`,
		"wrong type":  `{"results":{}}`,
		"no position": `{"results":[{"slug":"x","country_code_alpha3":"ISR","location":{"coordinates":[0,0]}}]}`,
		"no country":  `{"results":[{"slug":"x","country_code_alpha3":"../","location":{"coordinates":[34,32]}}]}`,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := setup(t)
			server.Fail(wolttest.Body(body))
			_, err := client.Search(t.Context(), pizzaHouse)
			wantFailure(t, err, provider.KindMalformed)
		})
	}
}

func search(t *testing.T, client *wolt.Client) {
	t.Helper()
	got, err := client.Search(t.Context(), match.Place{Name: "Pizza House", Location: &telAviv})
	check.That(t, err == nil && len(got) != 0, "Search = %v, %v", got, err)
}

func wantCityCalls(t *testing.T, server *wolttest.Server, want int) {
	t.Helper()
	got := 0
	for _, call := range server.Calls() {
		if call.Path == "/v1/cities" {
			got++
		}
	}
	check.Same(t, "the cities were asked for, times", got, want)
}
