package wolt_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

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
