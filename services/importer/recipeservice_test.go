package importer_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	importer "github.com/expediter-io/expediter/services/importer"
)

// calls notes what a Recipe Service is asked, and by whom.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, text)
}

// TestTheRecipeServiceIsCalledAsDocumented compares all that is asked for an import, from its beginning to its end, with the
// document, byte for byte: one that becomes a recipe, and one whose recipe is refused.
func TestTheRecipeServiceIsCalledAsDocumented(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-t0ken"
	site := newVideos(t)
	for name, c := range map[string]struct {
		status int
		answer string
		state  contracts.ImportState
		end    string
	}{
		"ready": {
			http.StatusCreated, `{"recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`, contracts.ImportReady,
			`{"status":"READY","recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`,
		},
		"refused": {
			http.StatusBadRequest, `{"message":"owner_id is unknown"}`, contracts.ImportFailed,
			`{"status":"FAILED","code":"store_failed","error":"Failed to create recipe: create recipe: the store answered 400: owner_id is unknown"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &calls{}
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				check.Is(t, err, nil)
				if r.Header.Get("X-Service-Token") != secret || r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %s: headers %v", r.Method, r.URL, r.Header)
				}
				asked.note(r.Method + " " + r.RequestURI + " " + string(body))
				switch {
				case r.Method == http.MethodGet:
					http.Error(w, "{}", http.StatusNotFound)
				case r.URL.Path == "/internal/recipes/from-import-job":
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.answer))
				}
			}))
			t.Cleanup(service.Close)
			i, _ := start(t, natstest.Server(t), func(cfg *importer.Config) {
				cfg.RecipeServiceURL, cfg.RecipeServiceToken = service.URL, secret
				cfg.Extractor = importer.Extractor{Extractor: echo{}, Name: "echo"}
			})
			address := site.URL + "/pancakes.vtt"
			job := contracts.ImportJob{JobID: "j1", OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: address}
			_, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: job})
			check.OK(t, err)
			check.Same(t, "it ended as", followed(t, i, "j1").Status, c.state)
			want := []string{
				`GET /internal/import-jobs/j1 `,
				`POST /internal/import-jobs/j1/status {"status":"RUNNING"}`,
				`POST /internal/import-jobs/j1/transcript {"segments":[{"start":1,"dur":4,"text":"Today we make pancakes."},` +
					`{"start":5,"dur":6,"text":"Mix 2 cups of flour with 1 teaspoon of salt."},{"start":11,"dur":7,"text":"Add 3 eggs and whisk until smooth."},` +
					`{"start":18,"dur":7,"text":"Pour the batter into a hot pan and fry for 2 minutes."}]}`,
				`POST /internal/recipes/from-import-job {"job_id":"j1","owner_id":"ada","source_ref":"` + address + `","title":"pancakes","description":"",` +
					`"ingredients":[{"item":"flour"}],"steps":[{"index":1,"text":": Today we make pancakes."}],"raw_transcript":` +
					`"[1.00s] Today we make pancakes.\n[5.00s] Mix 2 cups of flour with 1 teaspoon of salt.\n[11.00s] Add 3 eggs and whisk until smooth.\n` +
					`[18.00s] Pour the batter into a hot pan and fry for 2 minutes.\n"}`,
				`POST /internal/import-jobs/j1/status ` + c.end,
			}
			eventually(t, "the end is told", func() bool {
				asked.mu.Lock()
				defer asked.mu.Unlock()
				return len(asked.seen) >= len(want)
			})
			asked.mu.Lock()
			defer asked.mu.Unlock()
			check.Equal(t, want, asked.seen)
		})
	}
}
