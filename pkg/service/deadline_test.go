package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// slow is a body of n parts, each of which takes a second.
type slow int

func (s *slow) Read(p []byte) (int, error) {
	*s--
	if *s < 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	return copy(p, "x"), nil
}

// A request whose answer takes too long is answered with a problem that programs understand, and the time that its client needs
// to send it does not count.
func TestAnAnswerThatTakesTooLongIsAProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
		router.Handle("POST /slow", access.Public(), func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return errors.Join(err, r.Context().Err())
		})
		body := slow(25)
		answer, begun := httptest.NewRecorder(), time.Now()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/slow", &body)
		router.ServeHTTP(answer, r)
		if took := time.Since(begun); took != 40*time.Second {
			t.Errorf("the answer took %s, want 25 s for the body and 15 s", took)
		}
		if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" ||
			!strings.Contains(answer.Body.String(), `"code":"STORE_UNAVAILABLE"`) {
			t.Errorf("the answer is %d %v %s", answer.Code, answer.Header(), answer.Body)
		}
	})
}

// A store without an answer is the same problem, by whichever error a client of it says so.
func TestAStoreThatDoesNotAnswerIsOneProblem(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, jetstream.ErrNoStreamResponse} {
		if p := service.ErrorMapper(nil).Of(err); p.Status != http.StatusServiceUnavailable || p.Code != "STORE_UNAVAILABLE" {
			t.Errorf("%v is %+v", err, p)
		}
	}
}
