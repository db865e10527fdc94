// Package remotetest tests extractors that ask another service.
package remotetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
)

// Server is a service that records its requests.
type Server struct {
	URL string

	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

// Serve starts a service that answers with answer, and stops it at the end of the test.
func Serve(t *testing.T, answer http.HandlerFunc) *Server {
	t.Helper()
	s := &Server{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		s.mu.Lock()
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Asked returns the requests and their bodies.
func (s *Server) Asked() (requests []*http.Request, bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.bodies
}

// Says returns a handler that answers with a body.
func Says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// Hang returns a handler that sends nothing, or the beginning of an answer, until the client disconnects.
func Hang(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if begin != "" {
			_, _ = w.Write([]byte(begin))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
}

// Discreet fails the test when an error holds one of the secrets.
func Discreet(t *testing.T, err error, secrets ...string) {
	t.Helper()
	for _, text := range []string{err.Error(), extract.Failure(err).Message} {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the error tells %q", text)
			}
		}
	}
}

// Fails fails the test unless err is reported to the user as want and holds none of the secrets.
func Fails(t *testing.T, err error, want *extract.Error, secrets ...string) {
	t.Helper()
	got := extract.Failure(err)
	if got == nil {
		t.Fatalf("it is %v", err)
	}
	if got.Code != want.Code || got.Retryable != want.Retryable || got.RetryAfter != want.RetryAfter || got.Message != want.Message {
		t.Errorf("%+v", got)
	}
	Discreet(t, err, secrets...)
}

// Ask has a new extractor ask the service at url. A timeout of 0 is the default.
type Ask func(ctx context.Context, t *testing.T, url string, timeout time.Duration) error

// Conform tests that an extractor reports a service that does not answer, and asks once.
func Conform(t *testing.T, ask Ask, secrets ...string) {
	t.Helper()
	unanswered := func(t *testing.T, err error, message string) {
		t.Helper()
		want := &extract.Error{Code: failure.ExtractionFailed, Retryable: true, Message: "AI extraction failed: " + message}
		Fails(t, err, want, secrets...)
	}
	t.Run("a dead service", func(t *testing.T) {
		t.Parallel()
		const nobodys = "http://127.0.0.1:1" // another process may have the port of a closed server
		unanswered(t, ask(t.Context(), t, nobodys, 0), "the connection failed")
	})
	for name, begin := range map[string]string{"hangs before the answer": "", "hangs within the answer": `{"title":`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ask(t.Context(), t, Serve(t, Hang(begin)).URL, 50*time.Millisecond)
			unanswered(t, err, "no complete answer within 50ms")
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		t.Parallel()
		cause := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		server := Serve(t, func(w http.ResponseWriter, r *http.Request) {
			cancel(cause)
			Hang("")(w, r)
		})
		err := ask(ctx, t, server.URL, 0)
		if _, ok := errors.AsType[*extract.Error](err); ok || !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
	})
	t.Run("nothing is repeated", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{400, 429, 500, 503} { // the service that runs imports repeats the call
			server := Serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			if err := ask(t.Context(), t, server.URL, 0); err == nil {
				t.Error("no error")
			}
			if requests, _ := server.Asked(); len(requests) != 1 {
				t.Errorf("%d calls after a %d", len(requests), status)
			}
		}
	})
}
