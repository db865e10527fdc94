package imports

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

func TestAnImportEndsInARecipe(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	queued := i.submit(t, job("j1", "v1"))
	check.That(t, queued.Status == contracts.ImportQueued && queued.SourceID == "youtube:v1" && queued.Run == 1, "submitted: %+v", queued)
	i.work(t)
	stored := i.ready(t, "j1")
	if stored.JobID != "j1" || stored.OwnerID != "ada" || stored.ID != kvstore.RecipeID("j1") || stored.Recipe.Source.Extractor != "chef" {
		t.Errorf("stored: %+v", stored)
	}
	check.Same(t, "dead letters", i.settled(t), 0)
	check.Equal(t, []contracts.ImportState{contracts.ImportRunning, contracts.ImportReady}, i.keeper.toldOf("j1"))
}

// The message of the document, as anybody may publish it: no header, and a body alone.
func TestAPublishedMessageIsAJob(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.work(t)
	i.publish(t, "jobs.import.normal.j1", "", bodyOf(job("j1", "v1")))
	i.ready(t, "j1")
}

// However often and in whatever way a job comes in, it is one recipe and one fetch.
func TestDuplicatesAreOneImport(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	a, b := newInstance(t, srv), newInstance(t, srv)
	req := job("j1", "v1")
	a.submit(t, req)
	a.submit(t, req)
	for n := range 5 {
		a.publish(t, "jobs.import.normal.j1", fmt.Sprintf("m%d", n), bodyOf(req))
	}
	a.work(t)
	b.work(t)
	a.ready(t, "j1")
	a.settled(t)
	check.Same(t, "fetched, times", a.far.total()+b.far.total(), 1)
	list, _, err := a.recipes.List(t.Context(), kvstore.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1, "recipes: %+v, %v", list, err)
	if known, created, err := b.Submit(t.Context(), Submission{ImportJob: req}); err != nil || created || known.Status != contracts.ImportReady {
		t.Errorf("submitted once more: %+v, new: %t, %v", known, created, err)
	}
}

// Many jobs of one video at one moment, in two processes: one fetch, one extraction, a recipe for each.
func TestOneVideoIsFetchedOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	a, b := newInstance(t, srv), newInstance(t, srv)
	const jobs = 20
	for n := range jobs {
		req := job(fmt.Sprintf("j%d", n), "v1")
		req.OwnerID = fmt.Sprintf("owner%d", n)
		a.submit(t, req)
	}
	a.work(t)
	b.work(t)
	ids := map[string]bool{}
	for n := range jobs {
		ids[a.ready(t, fmt.Sprintf("j%d", n)).ID] = true
	}
	check.Same(t, "recipes for jobs", len(ids), jobs)
	check.Same(t, "fetched, times", a.far.total()+b.far.total(), 1)
	check.Same(t, "extracted, times", a.chef.total()+b.chef.total(), 1)
}

// A page that has its recipe as data needs no extractor.
func TestAPageWithARecipeIsNotExtracted(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.far.fetch = func(_ context.Context, req source.Request, _ func(string, float64)) (*source.Material, error) {
		r := soup(inputOf(video(req.URL), contracts.SourceWeb))
		return &source.Material{ID: "url:1", URL: req.URL, Recipe: &r}, nil
	}
	i.work(t)
	req := job("j1", "page")
	req.SourceType = contracts.SourceWeb
	i.submit(t, req)
	stored := i.ready(t, "j1")
	if i.chef.total() != 0 || stored.Recipe.Source.Extractor != PublishedBy || stored.Recipe.Source.Ref != req.URL {
		t.Errorf("extracted %d times: %+v", i.chef.total(), stored.Recipe.Source)
	}
}

// By choice an owner has a source once, however many ask at the same time, and through whichever instance.
func TestUniqueForOwnerAndSource(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	a, b := newInstance(t, srv), newInstance(t, srv)
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for n := range ids {
		wg.Go(func() {
			req := job(fmt.Sprintf("j%d", n), "v1")
			j, _, err := []*instance{a, b}[n%2].Submit(t.Context(), Submission{ImportJob: req, Unique: true})
			check.Is(t, err, nil)
			ids[n] = j.JobID
		})
	}
	wg.Wait()
	slices.Sort(ids)
	check.That(t, ids[0] != "" && len(slices.Compact(ids)) == 1, "jobs %v", ids)
	other := job("other", "v1")
	other.OwnerID = "eve"
	j, created, err := a.Submit(t.Context(), Submission{ImportJob: other, Unique: true})
	check.That(t, err == nil && created && j.JobID == "other", "another owner: %+v, %t, %v", j, created, err)
}

func TestIdempotencyKeyIsTheJob(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	sub := Submission{ImportJob: job("", "v1"), IdempotencyKey: "k"}
	first, created, err := i.Submit(t.Context(), sub)
	check.Require(t, err == nil && created, "first: %t, %v", created, err)
	second, created, err := i.Submit(t.Context(), sub)
	check.That(t, err == nil && !created && second.JobID == first.JobID, "second: %+v, %t, %v", second, created, err)
	sub.OwnerID = "eve"
	third, created, err := i.Submit(t.Context(), sub)
	check.That(t, err == nil && created && third.JobID != first.JobID, "another owner's: %+v, %t, %v", third, created, err)
}

// queued returns how many messages the stream of jobs holds.
func (i *instance) queued(t *testing.T) uint64 {
	t.Helper()
	stream, err := i.js.Stream(t.Context(), contracts.StreamImportJobs)
	check.OK(t, err)
	return stream.CachedInfo().State.Msgs
}

// TestJobIsQueuedOnceHoweverLongItWaits hands a job in again after the stream has forgotten its message ID.
func TestJobIsQueuedOnceHoweverLongItWaits(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		for range 3 {
			i.submit(t, job("j", "v"))
			check.Same(t, "messages are queued", i.queued(t), 1)
			elapse(10 * time.Minute)
		}
	})
}

// TestRetriedJobRunsAlthoughTheMessageBeforeIsStillQueued: a run is not refused because of the one before it.
func TestRetriedJobRunsAlthoughTheMessageBeforeIsStillQueued(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		i.submit(t, job("j", "v"))
		check.OK(t, check.Err(i.Cancel(t.Context(), "j")))
		check.OK(t, check.Err(i.Retry(t.Context(), "j")))
		check.Same(t, "messages are queued", i.queued(t), 2)
		i.work(t)
		i.ready(t, "j")
	})
}
