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
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// Each of these puts the service through what happens to a worker in production, and takes hold of it in another step:
// there it is killed, stopped, refused for good and kept waiting. The effect of a job is its recipe.

func TestConformsInTranscript(t *testing.T) {
	conform(t, func(i *instance, reach func(context.Context, string) error) {
		i.far.fetch = func(ctx context.Context, req source.Request, _ func(string, float64)) (*source.Material, error) {
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
