package importer

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// judge says what is wrong after all.
func (c *run) judge(kills int) {
	c.Helper()
	failed := 0
	for _, job := range c.inserted {
		if !c.wellEnded(job) {
			failed++
		}
	}
	c.recipes.mu.Lock()
	refused := len(c.recipes.refused)
	c.recipes.mu.Unlock()
	most := 3 + refused // the others are put off until the service answers
	if failed > most {
		c.Errorf("%d of %d jobs failed: want %d at most", failed, len(c.inserted), most)
	}
	fetches, again := 0, 0
	for video := range c.videos {
		n := c.fetches(video)
		fetches, again = fetches+n, again+c.wasted[video]
		if n-c.wasted[video] > 1 {
			c.Errorf("video %d was fetched %d times, %d of them by workers that were killed in the middle of it", video, n, c.wasted[video])
		}
		if n > 0 && failed == 0 && !c.shared(video) {
			c.Errorf("what is said in video %d is not found: the test does not know where it is", video)
		}
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) > 0 {
		c.Errorf("temporary folders %v, error %v: want none", entries, err)
	}
	if left := sourcetest.AtWork(c.dir); len(left) > 0 {
		c.Errorf("processes are left at work: %v", left)
	}
	c.recipes.mu.Lock()
	defer c.recipes.mu.Unlock()
	if len(c.recipes.foreign)+len(c.recipes.twice) > 0 {
		c.Errorf("calls that nobody answers %v, recipes of other sources or owners %v", c.recipes.foreign, c.recipes.twice)
	}
	c.Logf("%d jobs of %d videos, %d kills: %d failed; %d fetches, %d of them for nothing; %d recipes; %d calls of the Recipe Service",
		len(c.inserted), c.videos, kills, failed, fetches, again, len(c.recipes.recipes), c.recipes.calls)
}

// job is where a job stands.
func (c *run) job(id string) (job Job, known bool) {
	c.Helper()
	bucket, err := c.js.KeyValue(c.Context(), contracts.BucketImportJobs)
	check.OK(c, err)
	entry, err := bucket.Get(c.Context(), id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Job{}, false
	}
	check.OK(c, err)
	check.OK(c, json.Unmarshal(entry.Value(), &job))
	return job, true
}

// wellEnded reports whether a job is READY, and complains unless both sides agree on how it ended.
func (c *run) wellEnded(req contracts.ImportJob) bool {
	c.Helper()
	job, known := c.job(req.JobID)
	if !known {
		c.Fatalf("%s has no record", req.JobID)
	}
	told, recipe := c.recipes.ended(req.JobID)
	switch {
	case told.Status != job.Status:
		c.Errorf("%s is %s, and the Recipe Service was told that it is %s", job.JobID, job.Status, told.Status)
	case job.Status == contracts.ImportReady:
		if job.RecipeID == "" || job.RecipeID != recipe.id || told.RecipeID != recipe.id {
			c.Errorf("%s is READY with recipe %q, told %q: the Recipe Service has %q", job.JobID, job.RecipeID, told.RecipeID, recipe.id)
		}
		return true
	case job.Status != contracts.ImportFailed, job.Code != contracts.CodeStoreFailed && job.Code != contracts.CodeCrashed:
		c.Errorf("%s: %+v", job.JobID, job)
	}
	return false
}

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
