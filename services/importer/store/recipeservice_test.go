package store_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
)

const secret = "s3cret-t0ken"

// far is a Recipe Service that notes its calls.
type far struct {
	answer http.HandlerFunc

	mu   sync.Mutex
	seen []string
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.seen = append(f.seen, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+string(body)))
	f.mu.Unlock()
	if r.Header.Get("X-Service-Token") != secret {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if f.answer != nil {
		f.answer(w, r)
	}
}

func openRemote(t *testing.T, answer http.HandlerFunc) (*store.RecipeService, *far) {
	t.Helper()
	f := &far{answer: answer}
	server := httptest.NewServer(f)
	s := check.Must(store.NewRecipeService(remote.Config{BaseURL: server.URL + "/", Token: secret, Timeout: time.Minute}))(t)
	t.Cleanup(server.Close)
	return s, f
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// TestCallsAreTheDocumented makes every call, and compares it byte for byte.
func TestCallsAreTheDocumented(t *testing.T) {
	t.Parallel()
	s, f := openRemote(t, says(http.StatusOK, `{"status":"RUNNING","recipe_id":"r-1"}`))
	at := 120.0
	id, err := s.Create(t.Context(), store.Draft{JobID: "j", OwnerID: "o", Transcript: "[0.00s] Hello", Recipe: recipe.Recipe{
		Title: "Cookies", Description: "A classic", Source: recipe.Source{Ref: "https://www.youtube.com/watch?v=example"},
		Ingredients: []recipe.Ingredient{{Qty: "2.5", Unit: "cup", Item: "flour"}},
		Steps:       []recipe.Step{{Index: 1, Text: "Preheat oven", Timestamp: &at}},
	}})
	check.That(t, err == nil && id == "r-1", "%q, %v", id, err)
	for _, err := range []error{
		s.SetStatus(t.Context(), "j", contracts.ImportStatus{Status: contracts.ImportRunning, Attempt: 1, Step: "x", Error: "was"}),
		s.SetStatus(t.Context(), "j", contracts.ImportStatus{Status: contracts.ImportReady, RecipeID: "r-1"}),
		s.SetStatus(t.Context(), "j", contracts.ImportStatus{Status: contracts.ImportFailed, Code: failure.Private, Error: "no"}),
		s.SaveTranscript(t.Context(), "a/../b", []caption.Segment{{Start: time.Second, Dur: 2500 * time.Millisecond, Text: "Hi"}}),
	} {
		check.ErrorIs(t, err, nil)
	}
	status, err := s.Status(t.Context(), "j")
	check.That(t, err == nil && status.Status == contracts.ImportRunning, "%+v, %v", status, err)
	want := []string{
		`POST /internal/recipes/from-import-job {"job_id":"j","owner_id":"o","source_ref":"https://www.youtube.com/watch?v=example",` +
			`"title":"Cookies","description":"A classic","ingredients":[{"qty":"2.5","unit":"cup","item":"flour"}],` +
			`"steps":[{"index":1,"text":"Preheat oven","timestamp_sec":120}],"raw_transcript":"[0.00s] Hello"}`,
		`POST /internal/import-jobs/j/status {"status":"RUNNING"}`,
		`POST /internal/import-jobs/j/status {"status":"READY","recipe_id":"r-1"}`,
		`POST /internal/import-jobs/j/status {"status":"FAILED","code":"private","error":"no"}`,
		`POST /internal/import-jobs/a%2F..%2Fb/transcript {"segments":[{"start":1,"dur":2.5,"text":"Hi"}]}`,
		`GET /internal/import-jobs/j`,
	}
	check.Equal(t, f.seen, want)
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
			s, _ := openRemote(t, c.answer)
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
	s, _ := openRemote(t, says(http.StatusConflict, `{"error":"the job has a recipe","recipe_id":"r-1"}`))
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
	s, err := store.NewRecipeService(remote.Config{BaseURL: server.URL, Token: secret, Timeout: 20 * time.Millisecond})
	check.OK(t, err)
	err = s.SetStatus(t.Context(), "j", contracts.ImportStatus{Status: contracts.ImportRunning})
	check.That(t, store.Retryable(err) && err != nil, "%v", err)
}

func TestAJobThatTheServiceDoesNotKnow(t *testing.T) {
	t.Parallel()
	s, _ := openRemote(t, says(http.StatusNotFound, `{}`))
	status, err := s.Status(t.Context(), "j")
	check.That(t, status == nil && err == nil, "%+v, %v", status, err)
}

func TestConfigNamesEverything(t *testing.T) {
	t.Parallel()
	_, err := store.NewRecipeService(remote.Config{})
	check.That(t, err != nil && strings.Contains(err.Error(), "BaseURL is") && strings.Contains(err.Error(), "a Token is"), "%v", err)
}
