package wolt_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

// badDays are the faults of the fake server, each with the error that it has to become.
var badDays = map[string]struct {
	kind       provider.Kind
	retryAfter time.Duration
	status     int
}{
	"429 7":            {provider.KindRateLimited, 7 * time.Second, 429},
	"429":              {provider.KindRateLimited, 30 * time.Second, 429},
	"430":              {provider.KindBlocked, 0, 430},
	"410":              {provider.KindBlocked, 0, 410},
	"403":              {provider.KindBlocked, 0, 403},
	"404":              {provider.KindMisconfigured, 0, 404},
	"500":              {provider.KindUnavailable, 0, 500},
	"503":              {provider.KindUnavailable, 0, 503},
	"204":              {provider.KindBlocked, 0, 204},
	"redirect":         {provider.KindBlocked, 0, 307},
	"empty 200":        {provider.KindBlocked, 0, 200},
	"no-content":       {provider.KindBlocked, 0, 0},
	"html":             {provider.KindMalformed, 0, 0},
	"truncated":        {provider.KindMalformed, 0, 0},
	"broken off":       {provider.KindMalformed, 0, 200},
	"disconnect":       {provider.KindUnavailable, 0, 0},
	"hang":             {provider.KindTimeout, 0, 0},
	"hang in body":     {provider.KindTimeout, 0, 0},
	"oversized":        {provider.KindMalformed, 0, 200},
	"without sections": {provider.KindMalformed, 0, 0},
	"without items":    {provider.KindMalformed, 0, 0},
	"without venues":   {provider.KindMalformed, 0, 0},
}

func TestBadDaysAreErrorsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, fault := range wolttest.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			want, ok := badDays[fault.Name]
			check.Require(t, ok, "no expectation for this fault")
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.Fail(wolttest.Fault{}, fault) // The cities are there; the search fails.
				_, err := client.Search(t.Context(), pizzaHouse)
				failure := wantFailure(t, err, want.kind)
				check.That(t, failure.RetryAfter == want.retryAfter && failure.Status == want.status,
					"RetryAfter %s, Status %d; want %s, %d", failure.RetryAfter, failure.Status, want.retryAfter, want.status)
				// The day after is a good one.
				elapse(time.Minute)
				got, err := client.Search(t.Context(), pizzaHouse)
				check.That(t, err == nil && len(got) != 0, "Search on the day after = %v, %v", got, err)
			})
		})
	}
}

func TestBadDaysOfALaterCallAreErrors(t *testing.T) {
	t.Parallel()
	for _, fault := range wolttest.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.Fail(wolttest.Fault{}, wolttest.Fault{}, fault) // Cities, first search, second search.
				// Nothing on the first call: the second one might have had it.
				got, err := client.Search(t.Context(), match.Place{Name: "Taizu", Location: &telAviv})
				check.That(t, got == nil, "venues = %v, want none beside an error", got)
				wantFailure(t, err, badDays[fault.Name].kind)
			})
		})
	}
}

func TestBadDaysOfTheCitiesAreErrors(t *testing.T) {
	t.Parallel()
	for _, fault := range wolttest.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.Fail(fault)
				got, err := client.Search(t.Context(), match.Place{Name: "Taizu", Location: &telAviv})
				check.Require(t, err != nil && got == nil, "Search = %v, %v; want an error", got, err)
				check.That(t, len(asked(server)) == 0, "a search was made although no link could be")
			})
		})
	}
}

func TestUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	server := wolttest.Start(wolttest.Config{})
	client, err := wolt.New(wolt.Config{BaseURL: server.URL()}) // Its own transport, for once.
	check.OK(t, err)
	t.Cleanup(client.Close)
	check.OK(t, check.Err(client.Search(t.Context(), match.Place{Name: "Taizu", Location: &telAviv})))
	server.Close()
	_, err = client.Search(t.Context(), pizzaHouse)
	wantFailure(t, err, provider.KindUnavailable)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := wolttest.Start(wolttest.Config{})
	t.Cleanup(elsewhere.Close)
	server, client := setup(t)
	server.Fail(wolttest.Redirect(elsewhere.URL() + "/v1/cities"))
	_, err := client.Search(t.Context(), pizzaHouse)
	wantFailure(t, err, provider.KindBlocked)
	check.Same(t, "the other host was called", len(elsewhere.Calls()), 0)
}

func TestFoundBesideBrokenVenues(t *testing.T) {
	t.Parallel()
	const page = `{"sections":[{"name":"top","template":"banner"},{"template":"venue-list","items":[
		{"template":"banner"},
		{"template":"venue-large","venue":{"id":"1","name":"Pizza House","slug":"pizza-house"}},
		{"template":"venue-large","venue":{"id":"2","slug":"nameless"}}]}]}`
	server, client := setup(t)
	server.Fail(wolttest.Fault{}, wolttest.Body(page))
	got, err := client.Search(t.Context(), pizzaHouse)
	check.Require(t, err == nil && len(got) == 1, "Search = %v, %v; want the venue that can be read", got, err)
	server.FailAlways(wolttest.Body(page))
	_, err = client.Search(t.Context(), match.Place{Name: "Nameless", Location: &telAviv})
	wantFailure(t, err, provider.KindMalformed)
}

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
		t.Helper()
		server.FailAlways(wolttest.Hang())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := client.Search(ctx, pizzaHouse)
			done <- err
		}()
		synctest.Wait()
		cancel()
		err := <-done
		wantFailure(t, err, provider.KindCanceled)
		check.Is(t, err, context.Canceled)
	})
}

func TestCallerWhoHasGivenUpCausesNoCall(t *testing.T) {
	t.Parallel()
	server, client := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Search(ctx, pizzaHouse)
	wantFailure(t, err, provider.KindCanceled)
	check.Same(t, "calls =", len(server.Calls()), 0)
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		caller, search, want time.Duration
	}{
		"of the caller": {time.Second, 3 * time.Second, time.Second},
		"of the call":   {30 * time.Second, 20 * time.Second, 8 * time.Second},
		"of the search": {3 * time.Second, time.Second, time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, server *wolttest.Server, client *wolt.Client) {
				t.Helper()
				server.FailAlways(wolttest.Hang())
				ctx, cancel := context.WithTimeout(t.Context(), test.caller)
				defer cancel()
				began := time.Now()
				_, err := client.Search(ctx, pizzaHouse)
				wantFailure(t, err, provider.KindTimeout)
				check.Same(t, "took of fake time", time.Since(began), test.want)
			}, func(c *wolt.Config) { c.Timeout = test.search })
		})
	}
}

// TestBodyIsNotReadBeyondItsBound serves a body without end.
func TestBodyIsNotReadBeyondItsBound(t *testing.T) {
	t.Parallel()
	endless := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(zeros{})}, nil
	})
	_, client := setup(t, func(c *wolt.Config) { c.Transport = endless })
	_, err := client.Search(t.Context(), pizzaHouse)
	wantFailure(t, err, provider.KindMalformed)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// wantFailure checks that an error is a provider.Error of that kind, with all that
// a caller relies on.
func wantFailure(t *testing.T, err error, kind provider.Kind) *provider.Error {
	t.Helper()
	failure, ok := errors.AsType[*provider.Error](err)
	check.Require(t, ok, "error = %v, want a *provider.Error", err)
	check.That(t, failure.Kind == kind && failure.Provider == wolt.Name && failure.Detail != "",
		"error = %+v, want the kind %s, a provider and a detail", failure, kind)
	return failure
}
