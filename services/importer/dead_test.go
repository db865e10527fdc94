package importer_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// An import whose source failed as often as it is tried is a dead letter. Replayed when the source is there again, it becomes
// READY: one recipe, and no letter any more.
func TestADeadImportIsReplayed(t *testing.T) {
	t.Parallel()
	var back atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	srv := natstest.Server(t)
	i, _ := start(t, srv, func(c *importer.Config) { c.OutagePatience = time.Nanosecond })
	job := contracts.ImportJob{JobID: "j1", OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: site.URL + "/a.vtt"}
	const message = "The caption file could not be fetched: the site answered HTTP 503"
	last := imported(t, i, job)
	check.That(t, last.Code == contracts.CodeNetwork && last.Error == message && last.Retryable && last.Attempt == 1, "it ended as %+v", last)
	_, js := natstest.Connect(t, srv)
	dead := check.Must(deadletter.Open(t.Context(), js, deadletter.Config{}))(t)
	filter := deadletter.Filter{Kind: deadletter.KindLetter, Stream: contracts.StreamImportJobs, Subject: contracts.ImportJobsSubjects}
	letters := func() (letters []deadletter.Entry) {
		for entry, err := range dead.List(t.Context(), filter, deadletter.OldestFirst) {
			check.OK(t, err)
			letters = append(letters, entry)
		}
		return letters
	}
	check.Until(t, time.Minute, "the letter is there", func() bool { return len(letters()) == 1 })
	letter := letters()[0]
	check.That(t, letter.Problem == nil && strings.HasSuffix(letter.Letter.Error, message), "letter %+v", letter)

	back.Store(true)
	result, err := dead.Replay(t.Context(), filter, deadletter.ReplayOptions{})
	check.Require(t, err == nil && result.Done == 1, "%+v, %v", result, err)
	check.Until(t, time.Minute, "the job is READY", func() bool {
		last, err := i.Get(t.Context(), "j1")
		return err == nil && last.Status == contracts.ImportReady && last.RecipeID == kvstore.RecipeID("j1")
	})
	list, _, err := i.Recipes().List(t.Context(), kvstore.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1, "recipes %+v, %v", list, err)
	left := letters()
	check.That(t, len(left) == 0, "letters %+v", left)
}

// A file that a full store refuses is answered by a problem of its own, and is taken when there is room.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketImportJobs, "KV_" + contracts.BucketImportSteps, contracts.StreamImportJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			i, nc := start(t, natstest.Server(t))
			js := check.Must(jetstream.New(nc))(t)
			full := check.Must(js.Stream(t.Context(), stream))(t)
			body, contentType := form(t, "owner_id", "ada", "@fluffy-pancakes.en.vtt", captions)
			submit := func(bytes int64) (reply, string) {
				config := full.CachedInfo().Config
				config.MaxBytes = bytes
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				return call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
			}
			answer, text := submit(1)
			if answer.StatusCode != http.StatusInsufficientStorage || decode[struct{ Code string }](t, text).Code != "STORE_FULL" ||
				answer.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", answer.StatusCode, text)
			}
			answer, text = submit(1 << 26)
			check.Require(t, answer.StatusCode/100 == 2, "again: %d %s", answer.StatusCode, text)
			check.Same(t, "it ended as", followed(t, i, decode[importer.Job](t, text).JobID).Status, contracts.ImportReady)
		})
	}
}

// A field of a page that a recipe may lack, and that cannot be read, costs the recipe nothing else, and a warning names it. A
// field that a recipe does not have causes no warning.
func TestFieldsThatCannotBeReadAreLeftOut(t *testing.T) {
	t.Parallel()
	i, _ := start(t, natstest.Server(t))
	for field, named := range map[string]string{
		`"inLanguage":"English"`: `"English"`, `"recipeYield":{"@type":"QuantitativeValue","unitText":"servings"}`: "recipeYield", `"cookTime":"a while"`: "cookTime", `"author":{"@type":"Person","jobTitle":"cook"}`: "author",
		`"prepTime":"PT99999999H"`: "prepTime", `"image":{"@list":[[]]}`: "", `"nutrition":7`: "", `"recipeCategory":[[["x"]]]`: "",
	} {
		url, err := i.Keep(t.Context(), "soup.html", []byte(`<html lang=en><script type="application/ld+json">{"@type":"Recipe","name":"Soup",`+field+
			`,"recipeIngredient":["2 onions","1 l water"],"recipeInstructions":["Cut the onions.","Boil them in the water."]}</script>`))
		check.OK(t, err)
		last := imported(t, i, contracts.ImportJob{OwnerID: "ada", SourceType: contracts.SourceWeb, URL: url})
		warned := slices.ContainsFunc(last.Warnings, func(w recipe.Warning) bool {
			return w.Code == extract.WarnField && strings.Contains(w.Text, named)
		})
		check.That(t, last.Status == contracts.ImportReady && last.Title == "Soup" && warned == (named != ""), "%s ended as %+v", field, last)
	}
}
