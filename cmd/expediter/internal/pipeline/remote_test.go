package pipeline

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// remote returns a Remote of a service that answers as told.
func remote(t *testing.T, status int, body string) Remote {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) //nolint:errcheck // a client that has read enough hangs up
	}))
	t.Cleanup(server.Close)
	return Remote{Client: server.Client(), URL: server.URL}
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		status      int
		body        string
		want        string
		unavailable bool
	}{
		{"a refusal says why", 400, `{"detail":"waitMs is too long"}`, "answered 400: waitMs is too long", false},
		{"a refusal without a reason", 404, `not here`, "answered 404: Not Found", false},
		{"out of order", 503, `{"detail":"the store is down"}`, "answered 503: the store is down", true},
		{"a proxy in between", 502, `<html>`, "answered 502: Bad Gateway", true},
		{"no answer of an enricher", 200, `{"ok":true}`, "/requestId", false},
		{"no JSON", 200, `<html>`, "is not JSON", false},
		{"too much", 200, strings.Repeat(" ", 3*contracts.MaxBody), "at most", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := remote(t, tc.status, tc.body)
			_, err := r.Enrich(t.Context(), request("Alma"))
			check.Contains(t, err, tc.want, r.URL)
			got := errors.Is(err, enrich.ErrUnavailable)
			check.That(t, got == tc.unavailable, "unavailable %v, want %v: %v", got, tc.unavailable, err)
		})
	}
}

func TestRemoteNobodyThere(t *testing.T) {
	t.Parallel()
	r := remote(t, 200, "")
	r.URL = "http://127.0.0.1:1"
	_, err := r.Enrich(t.Context(), request("Alma"))
	check.That(t, errors.Is(err, enrich.ErrUnavailable) && strings.Contains(err.Error(), r.URL), "got %v", err)
}

func TestRemoteRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	var invalid *contracts.ValidationError
	_, err := (Remote{URL: "http://127.0.0.1:1"}).Enrich(t.Context(), request(""))
	check.That(t, errors.As(err, &invalid), "got %v", err)
	check.Failsf(t, check.Err((Remote{URL: "http://[broken"}).Enrich(t.Context(), request("Alma"))), "a broken URL is asked")
}

// The error of a caller that gives up is its context's, and not that the service is down.
func TestRemoteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil { // the server notices that the client has gone once it has all of the body
			t.Error(err)
		}
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	_, err := Remote{Client: server.Client(), URL: server.URL}.Enrich(ctx, request("Alma"))
	check.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, enrich.ErrUnavailable), "got %v", err)
}

// The request arrives as it was made, fields included that only the caller knows.
func TestRemoteSendsTheRequest(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/enrich" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %q, %v", r.Method, r.URL.Path, r.Header, err)
		}
		got <- body
		check.Is(t, check.Err(io.WriteString(w, `{"requestId":"r1","results":[{"placeId":"p1","name":"Alma"}],"pending":1}`)), nil)
	}))
	defer server.Close()
	const body = `{"requestId":"r1","results":[{"placeId":"p1","name":"Alma","stars":5.0}],"waitMs":700}`
	req := check.Must(contracts.Decode[contracts.EnrichRequest]([]byte(body)))(t)
	answer, err := Remote{Client: server.Client(), URL: server.URL + "/"}.Enrich(t.Context(), req)
	check.That(t, err == nil && answer.Response.RequestID == "r1" && answer.Response.Pending == 1 && answer.Details == nil,
		"%+v, %v", answer, err)
	check.Equal(t, body, string(<-got))
}
