package imports

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

func TestAnImportEndsInARecipe(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	queued := i.submit(t, job("j1", "v1"))
	check.That(t, queued.Status == contracts.ImportQueued && queued.SourceID == "youtube:v1" && queued.Run == 1, "submitted: %+v", queued)
	i.work(t)
	stored := i.ready(t, "j1")
	check.That(t, stored.JobID == "j1" && stored.OwnerID == "ada" && stored.ID == kvstore.RecipeID("j1") && stored.Recipe.Source.Extractor == "chef",
		"stored: %+v", stored)
	check.Same(t, "dead letters", i.settled(t), 0)
	check.Equal(t, []contracts.ImportState{contracts.ImportRunning, contracts.ImportReady}, i.keeper.reportedTo("j1"))
}

// The message of the document, as anybody may publish it: no header, and a body alone.
func TestAPublishedMessageIsAJob(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.work(t)
	i.publish(t, "jobs.import.normal.j1", "", bodyOf(job("j1", "v1")))
	i.ready(t, "j1")
}

// However often a job comes in, and over any API, it is one recipe and one fetch.
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
	i.far.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
		r := soup(inputOf(video(req.URL), contracts.SourceWeb))
		return &source.Material{ID: "url:1", URL: req.URL, Recipe: &r}, nil
	}
	i.work(t)
	req := job("j1", "page")
	req.SourceType = contracts.SourceWeb
	i.submit(t, req)
	stored := i.ready(t, "j1")
	check.That(t, i.chef.total() == 0 && stored.Recipe.Source.Extractor == PublishedBy && stored.Recipe.Source.Ref == req.URL,
		"extracted %d times: %+v", i.chef.total(), stored.Recipe.Source)
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
	stream := check.Must(i.js.Stream(t.Context(), contracts.StreamImportJobs))(t)
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

// A shared result that cannot be read is made anew, and one of an earlier version of the reader is another's.
func TestAnUnreadableResultIsMadeAnew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		keep := func(step, value string) {
			key := check.Must(contracts.ImportStepKey("youtube:v1", step))(t)
			claim := check.Must(i.flight.Begin(t.Context(), key, flight.BeginOptions{TTL: time.Minute}))(t)
			check.OK(t, check.Err(claim.Complete(t.Context(), []byte(value), time.Hour)))
		}
		keep("transcript-v1", "{}")
		keep("transcript-v1-"+source.Version, "{")
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		check.Same(t, "fetches", i.far.total(), 1)
		check.Same(t, "dead letters", i.settled(t), 0)
	})
}

// Each of these runs the service in the conformance suite of the worker, which intercepts another step: there it is
// killed, stopped, refused for good and kept waiting. The effect of a job is its recipe.

func TestConformsInTranscript(t *testing.T) {
	conform(t, func(i *instance, reach func(context.Context, string) error) {
		i.far.fetch = func(ctx context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
			if err := reach(ctx, req.JobID); err != nil {
				return nil, err
			}
			return video(req.URL), nil
		}
	})
}

func TestConformsInExtract(t *testing.T) {
	conform(t, func(i *instance, reach func(context.Context, string) error) {
		i.chef.extract = func(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
			if err := reach(ctx, in.Source.Ref[strings.LastIndexByte(in.Source.Ref, '/')+1:]); err != nil {
				return recipe.Recipe{}, err
			}
			return soup(in), nil
		}
	})
}

func TestConformsInCreate(t *testing.T) {
	conform(t, func(i *instance, reach func(context.Context, string) error) {
		i.keeper.create = func(ctx context.Context, d store.Draft) error { return reach(ctx, d.JobID) }
	})
}

func conform(t *testing.T, hold func(*instance, func(context.Context, string) error)) {
	t.Helper()
	workertest.Conform(t, workertest.Suite{
		Effects: conformEffects, Job: conformJob, Prepare: conformPrepare, Stream: contracts.StreamImportJobs,
		Service: func(ctx context.Context, env workertest.Env) error { return conformService(ctx, env, hold) },
	})
}

func conformPrepare(ctx context.Context, js jetstream.JetStream) error {
	_, err := contracts.Apply(ctx, js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})
	return err
}

// conformJob is a job whose id is that of its video too. Its message id is the job's.
func conformJob(n int) *nats.Msg {
	id := fmt.Sprintf("conform-%d", n)
	return &nats.Msg{
		Subject: "jobs.import.normal." + id, Data: []byte(bodyOf(job(id, id))),
		Header: nats.Header{nats.MsgIdHdr: {contracts.ImportJobMsgID(id)}},
	}
}

func conformService(ctx context.Context, env workertest.Env, hold func(*instance, func(context.Context, string) error)) error {
	recipes, err := kvstore.New(env.JS, env.Logger)
	if err != nil {
		return err
	}
	i := &instance{far: &far{}, chef: &chef{}, keeper: &keeper{Store: recipes}}
	hold(i, env.Recorder.Reach)
	s, err := New(ctx, env.JS, Config{
		ClaimTTL:  2 * time.Second, // the successor of a paused process waits for this
		Extractor: Extractor{Extractor: i.chef, Name: "chef"}, Fetcher: i.far, Logger: env.Logger, Store: i.keeper,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := worker.New(env.JS, worker.Config{
		AckWait: env.AckWait, AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "importer", Hooks: worker.Hooks{Settled: s.Settled},
		Logger: env.Logger, StepBucket: contracts.BucketImportSteps, Stream: contracts.StreamImportJobs,
	})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, contracts.ImportJobsSubjects, Policy(), s.Work); err != nil {
		return err
	}
	return w.Run(ctx)
}

// conformEffects counts the recipes of each job in the list of their owner, and those that a ready job has none of.
func conformEffects(ctx context.Context, js jetstream.JetStream) (map[string]int, error) {
	recipes, err := kvstore.New(js, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	list, _, err := recipes.List(ctx, kvstore.Query{OwnerID: "ada"})
	effects := map[string]int{}
	for _, r := range list {
		effects[r.JobID]++
	}
	return effects, err
}
