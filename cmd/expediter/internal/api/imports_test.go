package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub answers each request for events in turn, with the last answer again when there are no more.
type stub struct {
	*httptest.Server

	mu      sync.Mutex
	seen    []string // Last-Event-ID
	answers []http.HandlerFunc
}

func newStub(t *testing.T, answers ...http.HandlerFunc) (*stub, *Client) {
	t.Helper()
	s := &stub{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return s, &Client{HTTP: client, Pause: time.Millisecond, Patience: time.Minute, Service: "importer", URL: s.URL}
}

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer := s.answers[min(len(s.seen), len(s.answers)-1)]
	s.seen = append(s.seen, r.URL.EscapedPath()+" "+r.Header.Get("Last-Event-ID"))
	s.mu.Unlock()
	answer(w, r)
}

func (s *stub) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// says answers with lines of a stream, and ends it.
func says(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(strings.Join(lines, "\n") + "\n"))
	}
}

func event(id int, status contracts.ImportState) string {
	return fmt.Sprintf("id: %d\nevent: status\ndata: {\"job_id\":\"j\",\"status\":%q}\n", id, status)
}

func refuses(status int, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = w.Write(fmt.Appendf(nil, `{"title":"x","status":%d,"detail":%q}`, status, detail))
	}
}

func follow(ctx context.Context, c *Client) (states []contracts.ImportState, err error) {
	err = c.Follow(ctx, "a/b", func(j importer.Job) error {
		states = append(states, j.Status)
		return nil
	})
	return states, err
}

// After a lost connection, and after a restart of the importer, it continues behind the last change seen.
func TestFollowGoesOnAfterALostConnection(t *testing.T) {
	t.Parallel()
	s, c := newStub(t,
		says("retry: 2000\n", event(1, contracts.ImportQueued), ": heartbeat\n", event(2, contracts.ImportRunning)),
		refuses(http.StatusServiceUnavailable, "the service is stopping"),
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		says(event(3, contracts.ImportReady), event(4, contracts.ImportFailed)),
	)
	states, err := follow(t.Context(), c)
	want := []contracts.ImportState{contracts.ImportQueued, contracts.ImportRunning, contracts.ImportReady}
	check.OK(t, err)
	check.Equal(t, states, want)
	const path = "/v1/imports/a%2Fb/events "
	check.Equal(t, s.requests(), []string{path, path + "2", path + "2", path + "2"})
}

// A job that ended as it was told last has ended.
func TestFollowEndsWithNoContent(t *testing.T) {
	t.Parallel()
	_, c := newStub(t, says(event(1, contracts.ImportRunning)), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	states, err := follow(t.Context(), c)
	check.That(t, err == nil && len(states) == 1, "%v, %v", states, err)
}

func TestFollowGivesUp(t *testing.T) {
	t.Parallel()
	stop := errors.New("enough")
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"no such job":   {refuses(http.StatusNotFound, "importer: there is no such job"), ErrNotFound},
		"no importer":   {refuses(http.StatusNotFound, `there is no such resource: "/v1/imports/x/events"`), ErrNoRoute},
		"another thing": {http.NotFound, ErrUnavailable},
		"stays away":    {refuses(http.StatusServiceUnavailable, "the store does not answer"), ErrUnavailable},
		"no JSON":       {says("data: {"), ErrUnavailable},
		"told fails":    {says(event(1, contracts.ImportRunning)), stop},
	} {
		s, c := newStub(t, tc.answer)
		c.Patience = time.Nanosecond
		err := c.Follow(t.Context(), "j", func(importer.Job) error { return stop })
		check.ErrorIs(t, err, tc.want, name)
		check.Equal(t, len(s.requests()), 1, name+": requests")
	}
	_, c := newStub(t, says(event(1, contracts.ImportRunning)))
	ctx, cancel := context.WithCancelCause(t.Context())
	err := c.Follow(ctx, "j", func(importer.Job) error {
		cancel(stop)
		return nil
	})
	check.ErrorIs(t, err, stop)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	_, c := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"status":400,"detail":"long","errors":[{"path":"/url","problem":"is required"},` +
			`{"path":"/owner_id","problem":"is required"}]}`))
	})
	_, _, err := c.Submit(t.Context(), Submission{})
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Problem.Status != http.StatusBadRequest || !strings.HasSuffix(err.Error(), "refuses: url is required; owner_id is required") {
		t.Errorf("%v", err)
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a page":    says("<html>"),
		"a failure": refuses(http.StatusInternalServerError, "see the service's log"),
		"an abort":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		_, c := newStub(t, answer)
		check.ErrorIs(t, check.Err(c.Job(t.Context(), "j")), ErrUnavailable, name)
	}
}

// A redirect, even to another port of the same host, gets no request and so not the key.
func TestRedirectGetsNoKey(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusSeeOther, http.StatusTemporaryRedirect} {
		thief, _ := newStub(t, func(http.ResponseWriter, *http.Request) {})
		_, c := newStub(t, http.RedirectHandler(thief.URL+"/v1/imports", status).ServeHTTP)
		c.Key = "secret"
		_, err := c.Do(t.Context(), http.MethodGet, "/v1/imports", nil, nil, &struct{}{})
		check.That(t, errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrBusy), "%d: %v", status, err)
		check.ErrorContains(t, err, thief.URL+"/v1/imports")
		check.ErrorContains(t, check.Err(c.Open(t.Context(), "/v1/imports/1/events", "")), "not followed")
		check.Equal(t, len(thief.requests()), 0, "requests to the other port")
	}
	_, c := newStub(t, http.RedirectHandler("/v1/there", http.StatusSeeOther).ServeHTTP, func(w http.ResponseWriter, _ *http.Request) {
		check.OK(t, check.Err(io.WriteString(w, "{}")))
	})
	status, err := c.Do(t.Context(), http.MethodPost, "/v1/here", nil, nil, &struct{}{})
	check.That(t, status == http.StatusOK && err == nil, "to the same address: %d, %v", status, err)
}
