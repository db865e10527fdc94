package importer_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	importer "github.com/expediter-io/expediter/services/importer"
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
	if _, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: job}); err != nil {
		t.Fatal(err)
	}
	const message = "The caption file could not be fetched: the site answered HTTP 503"
	last := followed(t, i, "j1")
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
	eventually(t, "the letter is there", func() bool { return len(letters()) == 1 })
	letter := letters()[0]
	check.That(t, letter.Problem == nil && strings.HasSuffix(letter.Letter.Error, message), "letter %+v", letter)

	back.Store(true)
	result, err := dead.Replay(t.Context(), filter, deadletter.ReplayOptions{})
	check.Require(t, err == nil && result.Done == 1, "%+v, %v", result, err)
	eventually(t, "the job is READY", func() bool {
		last, err := i.Get(t.Context(), "j1")
		return err == nil && last.Status == contracts.ImportReady && last.RecipeID == kvstore.RecipeID("j1")
	})
	list, _, err := i.Recipes().List(t.Context(), kvstore.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1, "recipes %+v, %v", list, err)
	left := letters()
	check.That(t, len(left) == 0, "letters %+v", left)
}

// eventually waits until something has come true, and says what when it never does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	giveUp := time.NewTimer(time.Minute)
	defer giveUp.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-giveUp.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
