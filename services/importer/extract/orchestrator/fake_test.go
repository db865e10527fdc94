package orchestrator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// token is a secret that must turn up in one header and nowhere else.
const token = "s3cr3t-service-token"

// fake is an orchestrator that keeps what it was asked.
type fake struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func (f *fake) asked() (requests []*http.Request, bodies []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests, f.bodies
}

// setup starts a fake that answers as it is told to, and an extractor that asks it.
func setup(t *testing.T, answer http.HandlerFunc, mutate ...func(*orchestrator.Config)) (*fake, *orchestrator.Extractor) {
	t.Helper()
	f := &fake{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		f.mu.Lock()
		f.requests, f.bodies = append(f.requests, r), append(f.bodies, string(body))
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	config := orchestrator.Config{BaseURL: server.URL + "/", Token: token}
	for _, m := range mutate {
		m(&config)
	}
	e, err := orchestrator.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return f, e
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// cookies is the video of the document.
func cookies() extract.Input {
	return extract.Input{
		Title: "Perfect Chocolate Chip Cookies", Description: "A classic recipe\n2 eggs", Language: "en", Duration: 5 * time.Minute,
		Chapters: []extract.Chapter{{Start: 0, Title: "Intro"}, {Start: 2 * time.Minute, Title: "Baking"}},
		Segments: []caption.Segment{
			{Start: 0, Dur: 5500 * time.Millisecond, Text: "Hello, we need 2.5 cups of flour"},
			{Start: 5500 * time.Millisecond, Dur: 4500 * time.Millisecond, Text: "and two eggs"},
			{Start: 2 * time.Minute, Dur: 10 * time.Second, Text: "preheat the oven to 350 degrees"},
		},
		Source: recipe.Source{Type: "youtube", Ref: "https://www.youtube.com/watch?v=example"},
	}
}

// documented is the answer of the document.
const documented = `{
  "title": "Perfect Chocolate Chip Cookies",
  "description": "A classic recipe",
  "ingredients": [{"qty": "2.5", "unit": "cup", "item": "flour"}],
  "steps": [{"index": 1, "text": "Preheat oven", "timestamp_sec": 120}]
}`
