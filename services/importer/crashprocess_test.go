package importer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func (c *run) spawn(d duty) *crash.Process {
	c.Helper()
	d.Recipes, d.TempDir, d.URL = c.recipes.URL, c.dir, c.url
	if c.youTube != nil {
		d.CAFile, d.Proxy = c.youTube.CAFile, c.youTube.Proxy
	}
	return workers.Start(c, d)
}

// captionSite is a site with caption files.
type captionSite struct {
	*httptest.Server

	mu     sync.Mutex
	counts map[string]int
}

func newCaptionSite(t *testing.T) *captionSite {
	t.Helper()
	f := &captionSite{counts: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		f.mu.Lock()
		f.counts[name]++
		f.mu.Unlock()
		_, _ = w.Write([]byte(pancakes(name)))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *captionSite) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// pancakes is a caption file that holds a recipe, and a word by which it differs from others.
func pancakes(word string) string {
	return `WEBVTT

00:01.000 --> 00:05.000
Today we make pancakes ` + word + `.

00:05.000 --> 00:11.000
Mix 2 cups of flour with 1 teaspoon of salt.

00:11.000 --> 00:18.000
Add 3 eggs and whisk until smooth.

00:18.000 --> 00:25.000
Pour the batter into a hot pan and fry for 2 minutes.
`
}
