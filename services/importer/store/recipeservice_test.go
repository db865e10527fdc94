package store_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/store"
)

const secret = "s3cret-t0ken"

// openService opens a Recipe Service that answers with answer.
func openService(t *testing.T, answer http.HandlerFunc) *store.RecipeService {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return check.Must(store.NewRecipeService(remote.Config{BaseURL: server.URL + "/", Token: secret, Timeout: time.Minute}))(t)
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		retryable bool
		after     time.Duration
		text      string
	}{
		"failed":         {says(500, `{"error":"database"}`), true, 0, "create recipe: the store answered 500: database"},
		"unavailable":    {says(503, `<html>`), true, 0, "create recipe: the store answered 503: Service Unavailable"},
		"in conflict":    {says(409, `{"error":"busy"}`), false, 0, "create recipe: the store answered 409: busy"},
		"refused":        {says(400, `{"message":"owner_id is unknown"}`), false, 0, "create recipe: the store answered 400: owner_id is unknown"},
		"not permitted":  {says(403, ``), true, 0, "create recipe: the store answered 403: Forbidden"},
		"redirected":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, false, 0, "302"},
		"without an id":  {says(200, `{}`), false, 0, "create recipe: the answer has no recipe_id"},
		"not JSON":       {says(200, `ok`), false, 0, "not the JSON"},
		"endless":        {says(200, strings.Repeat(" ", 1<<20)), false, 0, "more than 65536 bytes"},
		"cut off":        {cutOff, true, 0, "create recipe: "},
		"asked to pause": {pauses, true, 7 * time.Second, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openService(t, c.answer)
			_, err := s.Create(t.Context(), store.Draft{JobID: "j"})
			failed, ok := errors.AsType[*store.Error](err)
			if !ok || failed.Retryable != c.retryable || failed.Refused != (failed.Status == http.StatusForbidden) || failed.RetryAfter != c.after || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v", failed, err)
			}
			check.That(t, err == nil || !strings.Contains(err.Error(), secret) && !strings.Contains(err.Error(), "127.0.0.1"),
				"the error tells too much: %v", err)
		})
	}
}

// The answer to an earlier call was lost: the recipe is there.
func TestARecipeThatExistsIsTheJobs(t *testing.T) {
	t.Parallel()
	s := openService(t, says(http.StatusConflict, `{"error":"the job has a recipe","recipe_id":"r-1"}`))
	id, err := s.Create(t.Context(), store.Draft{JobID: "j"})
	check.That(t, id == "r-1" && err == nil, "%q, %v", id, err)
}

func cutOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func pauses(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "7")
	w.WriteHeader(http.StatusTooManyRequests)
}

func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	s := check.Must(store.NewRecipeService(remote.Config{BaseURL: server.URL, Token: secret, Timeout: 20 * time.Millisecond}))(t)
	err := s.SetStatus(t.Context(), "j", contracts.ImportStatus{Status: contracts.ImportRunning})
	check.That(t, store.Retryable(err) && err != nil, "%v", err)
}

// The id of a job is one segment of a path, whatever it holds.
func TestAJobIDIsNoPath(t *testing.T) {
	t.Parallel()
	s := openService(t, func(_ http.ResponseWriter, r *http.Request) {
		check.Equal(t, r.URL.EscapedPath(), "/internal/import-jobs/a%2F..%2Fb/transcript")
	})
	check.OK(t, s.SaveTranscript(t.Context(), "a/../b", nil))
}

func TestAJobThatTheServiceDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := openService(t, says(http.StatusNotFound, `{}`))
	status, err := s.Status(t.Context(), "j")
	check.That(t, status == nil && err == nil, "%+v, %v", status, err)
}

func TestConfigNamesEverything(t *testing.T) {
	t.Parallel()
	_, err := store.NewRecipeService(remote.Config{})
	check.That(t, err != nil && strings.Contains(err.Error(), "BaseURL is") && strings.Contains(err.Error(), "a Token is"), "%v", err)
}
