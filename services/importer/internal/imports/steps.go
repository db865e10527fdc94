package imports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/step"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// The steps of a job. Their names are stored in the state of a job and in the journal of the worker.
const (
	stepTranscript = "transcript"
	stepExtract    = "extract"
	stepCreate     = "create"
)

const (
	// version is a part of the keys of shared steps. It changes with the format of their values.
	version = "v1"

	// transcriptKey is the part of the key of a transcript after its source.
	transcriptKey = stepTranscript + "-" + version + "-" + source.Version

	// spread is the share by which the TTLs of shared results vary, so that results of the same moment do not expire
	// together.
	spread = 0.1
)

// steps makes the recipe.
func (a *attempt) steps(ctx context.Context) error {
	material, err := a.transcript(ctx)
	if err != nil {
		return err
	}
	a.passed(PointTranscript)
	a.saveTranscript(ctx, material)
	a.passed(PointSaved)
	made, err := a.extract(ctx, material)
	if err != nil {
		return err
	}
	a.passed(PointRecipeNoted)
	recipeID, err := a.create(ctx, material, made)
	if err != nil {
		return err
	}
	a.passed(PointNoted)
	return a.ready(ctx, recipeID, made)
}

// transcript fetches the material of the source, once for all jobs that want it.
func (a *attempt) transcript(ctx context.Context) (*source.Material, error) {
	if err := a.enterStep(ctx, stepTranscript); err != nil {
		return nil, err
	}
	return step.Run(ctx, a.job, stepTranscript, func(ctx context.Context) (*source.Material, error) {
		key, err := stepKey(a.record.SourceID, transcriptKey)
		if err != nil {
			return nil, fmt.Errorf("importer: source id: %w", err)
		}
		started := time.Now()
		found, err := a.share(ctx, key, a.fetch, a.cfg.TranscriptTTL)
		if errors.Is(err, kvlock.ErrTooLarge) {
			return nil, &FailedError{Code: failure.BadCaptions, Message: "The source is too large to be kept", Err: err}
		}
		if err != nil {
			return nil, arrived(err)
		}
		if err := a.memory.Hold(ctx, memory.ToKeep(len(found.Value))); err != nil {
			return nil, err
		}
		material := &source.Material{}
		if err := json.Unmarshal(found.Value, material); err != nil {
			return nil, a.unreadable(ctx, key, err)
		}
		said := len(material.Description)
		for _, segment := range material.Transcript.Segments {
			said += len(segment.Text)
		}
		if err := a.memory.Hold(ctx, memory.ToKeep(len(found.Value))+memory.ToExtract(said)); err != nil {
			return nil, err
		}
		a.log(ctx, slog.LevelInfo, EventTranscript, a.id, slog.String("source_id", a.record.SourceID),
			slog.Int("segments", len(material.Transcript.Segments)), slog.Duration("elapsed", time.Since(started)),
			slog.Bool("shared", found.Outcome != flight.Computed))
		a.passed(PointShared)
		return material, nil
	})
}

// computation is a function that runs for a job, with its context, which ends when no job waits for it.
type computation struct {
	ctx  context.Context
	done chan struct{}
}

// share computes the result of a key once for all jobs. When this job has computed the result and the bucket does not
// take it, because the bucket is full or the owner keeps enough, only this job uses the result. Otherwise it would be computed again and
// again.
func (a *attempt) share(
	ctx context.Context, key string, compute func(context.Context) ([]byte, error), ttl time.Duration,
) (flight.Result, error) {
	var own atomic.Pointer[[]byte]
	var running atomic.Pointer[computation]
	found, err := a.flight.Do(ctx, key, func(ctx context.Context) ([]byte, error) {
		c := &computation{ctx: ctx, done: make(chan struct{})}
		running.Store(c)
		defer close(c.done)
		a.memory.Enter() // the call may continue for other jobs when this job has ended
		defer a.memory.Leave()
		data, err := compute(memory.With(ctx, a.memory))
		if data != nil {
			own.Store(&data)
		}
		return data, err
	}, flight.DoOptions{FailureTTL: failureTTL, Jitter: spread, Job: a.id[:min(len(a.id), 100)], TTL: ttl})
	if c := running.Load(); c != nil && c.ctx.Err() != nil {
		<-c.done // no other job waits for it, so it holds this job's memory and slot: if it goes on, the worker reports the job as stuck
	}
	data := own.Load()
	switch {
	case err == nil || ctx.Err() != nil:
	case data != nil && (errors.Is(err, kvlock.ErrUnavailable) || errors.Is(err, kvrecord.ErrUnavailable) || isShare(err)):
		a.logger.WarnContext(ctx, "importer: a result is not kept for others", "job_id", a.id, "key", key, "error", err)
		return flight.Result{Key: key, Outcome: flight.Computed, Value: *data}, nil
	case data == nil && isShare(err): // of the owner of the job that has computed it
		return a.share(ctx, key, compute, ttl)
	}
	return found, err
}

// unreadable removes a shared result that cannot be read, so that the next attempt recomputes it, and returns the
// error of this attempt.
func (a *attempt) unreadable(ctx context.Context, key string, err error) error {
	removed := a.flight.Invalidate(ctx, key)
	return errors.Join(fmt.Errorf("importer: the shared result %s for %s cannot be read: %w", key, a.record.SourceID, err), removed)
}

// sourceOf returns the request of a job to its source.
func sourceOf(job contracts.ImportJob) source.Request {
	return source.Request{JobID: job.JobID, Encoding: job.Encoding, Language: job.Language, Type: job.SourceType, URL: job.URL}
}

// fetch fetches the material from the source itself.
func (a *attempt) fetch(ctx context.Context) ([]byte, error) {
	a.passed(PointFetching)
	var material *source.Material
	err := a.reach(ctx, sideOf(&a.record), failureOf, func(ctx context.Context) (err error) {
		started := time.Now()
		material, err = a.cfg.Fetcher.Fetch(ctx, sourceOf(a.record.request()), a.progress(ctx, stepTranscript))
		a.timed(ctx, stepTranscript, started, err)
		a.passed(PointFetched)
		if err == nil && material == nil {
			err = errors.New("importer: the source gave nothing")
		}
		return err
	})
	data, err := a.encode(ctx, "transcript", material, err)
	if err != nil || a.cfg.Charge == nil {
		return data, err
	}
	return data, a.cfg.Charge(ctx, a.record.OwnerID, len(data)*3/4) // a photo is base64, which is compressed when it is kept
}

// saveTranscript stores the transcript. The job goes on when the store does not take it, because the transcript is sent
// again with the recipe.
func (a *attempt) saveTranscript(ctx context.Context, m *source.Material) {
	if len(m.Transcript.Segments) == 0 {
		return
	}
	err := a.cfg.RetryStatus.Do(ctx, func(ctx context.Context) error {
		return a.cfg.Store.SaveTranscript(ctx, a.id, m.Transcript.Segments)
	}, judge, a.onRetry(ctx, "store_transcript", a.id))
	if err != nil && ctx.Err() == nil {
		a.logger.WarnContext(ctx, "importer: the store did not take a transcript", "job_id", a.id, "error", limit(err.Error()))
	}
}

// extract makes the recipe of a transcript, once for all jobs that have the same transcript.
func (a *attempt) extract(ctx context.Context, m *source.Material) (recipe.Recipe, error) {
	if err := a.enterStep(ctx, stepExtract); err != nil {
		return recipe.Recipe{}, err
	}
	return step.Run(ctx, a.job, stepExtract, func(ctx context.Context) (recipe.Recipe, error) {
		in := inputOf(m, a.record.SourceType)
		if m.Recipe != nil {
			made, err := published(m, in)
			return warned(made, m), err
		}
		key, err := a.extractKey(in)
		if err != nil {
			return recipe.Recipe{}, err
		}
		started := time.Now()
		found, err := a.share(ctx, key, func(ctx context.Context) ([]byte, error) { return a.ask(ctx, in) }, a.cfg.TranscriptTTL)
		if err != nil {
			return recipe.Recipe{}, arrived(err)
		}
		var made recipe.Recipe
		if err := json.Unmarshal(found.Value, &made); err != nil {
			return recipe.Recipe{}, a.unreadable(ctx, key, err)
		}
		a.log(ctx, slog.LevelInfo, EventExtracted, a.id, slog.String("extractor", a.cfg.Extractor.Name),
			slog.Int("ingredients", len(made.Ingredients)), slog.Int("steps", len(made.Steps)),
			slog.Duration("elapsed", time.Since(started)), slog.Bool("shared", found.Outcome != flight.Computed))
		a.passed(PointRecipe)
		return warned(made, m), nil
	})
}

// warned adds the warnings about the reading of the source to the recipe.
func warned(made recipe.Recipe, m *source.Material) recipe.Recipe {
	made.Warnings = append(made.Warnings, m.Warnings...)
	if len(m.Image) > 0 {
		made.Warnings = append(made.Warnings, recipe.Warning{
			Code: WarnPhoto, Text: "The recipe was read from a photo: compare its numbers with the photo.",
		})
	}
	if m.Truncated {
		made.Warnings = append(made.Warnings, recipe.Warning{
			Code: WarnTruncated, Text: "The source was longer than is read; the recipe may lack its end.",
		})
	}
	return made
}

// extractKey returns the key of the extractor's result for an input.
func (a *attempt) extractKey(in extract.Input) (string, error) {
	data, err := json.Marshal(in) //nolint:musttag // hashed, and read by nobody
	if err != nil {
		return "", fmt.Errorf("importer: encode the input of an extractor: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", a.cfg.Extractor.Name, a.cfg.Extractor.Version, data))
	key, err := stepKey(hex.EncodeToString(sum[:]), stepExtract+"-"+version)
	if err != nil {
		return "", fmt.Errorf("importer: %w", err)
	}
	return key, nil
}

// ask has the extractor itself make the recipe.
func (a *attempt) ask(ctx context.Context, in extract.Input) ([]byte, error) {
	a.passed(PointExtracting)
	var made recipe.Recipe
	extractor := extract.Checked(a.cfg.Extractor)
	err := a.reach(ctx, sideExtractor, extractFailure, func(ctx context.Context) error {
		return a.cfg.RetryExtract.Do(ctx, func(ctx context.Context) error {
			started := time.Now()
			var err error
			made, err = extractor.Extract(ctx, in)
			a.timed(ctx, stepExtract, started, err)
			return err
		}, judgeExtract, a.onRetry(ctx, "extraction", a.id))
	})
	a.passed(PointExtracted)
	made.Source.Extractor = cmp.Or(made.Source.Extractor, a.cfg.Extractor.Name)
	return a.encode(ctx, "recipe", made, err)
}

// encode returns the result of a step that is shared, or the error with which it failed.
func (a *attempt) encode(ctx context.Context, what string, result any, err error) ([]byte, error) {
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, carried{failureOf(err)}
	}
	data, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("importer: encode the %s of %s: %w", what, a.record.SourceID, err)
	}
	return data, nil
}

// create keeps the recipe.
func (a *attempt) create(ctx context.Context, m *source.Material, made recipe.Recipe) (string, error) {
	if err := a.enterStep(ctx, stepCreate); err != nil {
		return "", err
	}
	return step.Run(ctx, a.job, stepCreate, func(ctx context.Context) (string, error) {
		draft := store.Draft{JobID: a.id, OwnerID: a.record.OwnerID, Recipe: made, Transcript: text(m)}
		started := time.Now()
		var id string
		err := a.reach(ctx, sideRecipes, storeFailure("Failed to create recipe: "), func(ctx context.Context) error {
			return a.cfg.RetryCreate.Do(ctx, func(ctx context.Context) error {
				var err error
				id, err = a.cfg.Store.Create(ctx, draft)
				return err
			}, judge, a.onRetry(ctx, "recipe_creation", a.id))
		})
		a.timed(ctx, stepCreate, started, err)
		if err != nil {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			return "", err
		}
		a.log(ctx, slog.LevelInfo, EventCreated, a.id, slog.String("recipe_id", id), slog.Duration("elapsed", time.Since(started)))
		a.passed(PointCreated)
		return id, nil
	})
}

// ready ends the job well. A recipe that exists outweighs a failure that another attempt has reported.
func (a *attempt) ready(ctx context.Context, recipeID string, made recipe.Recipe) error {
	changed := false
	r, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		changed = false
		if a.takenBack(r) || r.Status == contracts.ImportReady {
			return nil, errKeep
		}
		changed = true
		r.enter(contracts.ImportReady, a.job.Attempt)
		r.RecipeID, r.Title, r.Warnings, r.Message = recipeID, made.Title, made.Warnings, a.job.Sequence
		return r, nil
	})
	if err != nil {
		return err
	}
	if changed {
		a.ended(ctx, &r, a.started)
		a.log(ctx, slog.LevelInfo, EventReady, a.id, slog.String("recipe_id", recipeID), slog.Duration("elapsed", time.Since(a.started)))
	}
	if r.Status != contracts.ImportReady {
		return errTakenBack
	}
	a.passed(PointReady)
	err = a.reportEnd(ctx, &r)
	a.passed(PointEnded)
	return err
}
