package orchestrator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remotetest"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
	"github.com/expediter-io/expediter/services/importer/internal/remote"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// token is a secret that must turn up in one header and nowhere else.
const token = "s3cr3t-service-token"

// setup starts a service that answers with answer, and an extractor that asks it, with checks.
func setup(t *testing.T, answer http.HandlerFunc) (*remotetest.Server, extract.Extractor) {
	t.Helper()
	server := remotetest.Serve(t, answer)
	return server, extract.Checked(check.Must(orchestrator.New(remote.Config{BaseURL: server.URL + "/", Token: token}))(t))
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
