package imports

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

var errFar = errors.New("the far side is out of order")

type fetchFunc = func(context.Context, source.Request, func(float64)) (*source.Material, error)

func fetchFails(err error) fetchFunc {
	return func(context.Context, source.Request, func(float64)) (*source.Material, error) {
		return nil, err
	}
}

func extractFails(err error) func(context.Context, extract.Input) (recipe.Recipe, error) {
	return func(context.Context, extract.Input) (recipe.Recipe, error) { return recipe.Recipe{}, err }
}

// TestFailuresAreToldByCodeAndMessage makes each step fail in each way. A temporary failure is tried again as often as is
// documented before it is reported, and ends in the dead letters; a permanent one is reported at once and does not. Time is
// fake.
func TestFailuresAreToldByCodeAndMessage(t *testing.T) {
	const noCaptions = "No transcript available - this video may not have captions enabled"
	for name, c := range map[string]struct {
		sabotage  func(*instance)
		code      contracts.ImportCode
		message   string
		step      string
		attempts  int
		letters   uint64
		fetches   int
		extracted int
	}{
		"no captions": {
			sabotage: func(i *instance) {
				i.far.fetch = fetchFails(&source.Error{Code: contracts.CodeNoCaptions, Message: noCaptions})
			},
			code: contracts.CodeNoCaptions, message: noCaptions, step: stepTranscript, attempts: 1, fetches: 1,
		},
		"unsupported address": {
			sabotage: func(*instance) {},
			code:     contracts.CodeUnavailable, message: "This address is not supported", attempts: 1,
		},
		"the source fails": {
			sabotage: func(i *instance) {
				i.far.fetch = fetchFails(&source.Error{Code: contracts.CodeNetwork, Retryable: true, RetryAfter: time.Minute, Message: "no address"})
			},
			code: contracts.CodeNetwork, message: "no address", step: stepTranscript, attempts: 5, letters: 1, fetches: 5,
		},
		"extraction fails": {
			sabotage: func(i *instance) { i.chef.extract = extractFails(errFar) },
			code:     contracts.CodeExtractionFailed, message: "AI extraction failed: something went wrong", step: stepExtract, attempts: 1,
			letters: 1, fetches: 1, extracted: 3,
		},
		"extractor refuses": {
			sabotage: func(i *instance) { i.chef.extract = extractFails(extract.Failed(false, errFar, "the model refused")) },
			code:     contracts.CodeExtractionFailed, message: "AI extraction failed: the model refused", step: stepExtract, attempts: 1,
			fetches: 1, extracted: 1,
		},
		"recipe without steps": {
			sabotage: func(i *instance) {
				i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
					r := soup(in)
					r.Steps = nil
					return r, nil
				}
			},
			code: contracts.CodeInvalidRecipe, message: "Invalid recipe data from AI", step: stepExtract, attempts: 1, fetches: 1, extracted: 1,
		},
		"no recipe": {
			sabotage: func(i *instance) { i.chef.extract = extractFails(fmt.Errorf("rules: %w", extract.ErrNoRecipe)) },
			code:     contracts.CodeExtractionFailed, message: "AI extraction failed: no recipe was found in the source", step: stepExtract,
			attempts: 1, fetches: 1, extracted: 1,
		},
		"store fails": {
			sabotage: func(i *instance) {
				i.keeper.create = func(context.Context, store.Draft) error {
					return &store.Error{Op: "create recipe", Status: 503, Retryable: true, Err: errFar}
				}
			},
			code:    contracts.CodeStoreFailed,
			message: "Failed to create recipe: create recipe: the store answered 503: the far side is out of order",
			step:    stepCreate, attempts: 1, letters: 1, fetches: 1, extracted: 1,
		},
		"status cannot be told": {
			sabotage: func(i *instance) {
				i.keeper.setStatus = func(s contracts.ImportStatus) error {
					if s.Status == contracts.ImportRunning {
						return errFar
					}
					return nil
				}
			},
			code: contracts.CodeStoreFailed, message: "Status update failed: the far side is out of order", attempts: 1, letters: 1,
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, func(_ *instance, c *Config) { c.OutagePatience = time.Minute })
			c.sabotage(i)
			i.work(t)
			url := "v1"
			if name == "unsupported address" {
				url = "unsupported"
			}
			i.publish(t, "jobs.import.normal.j1", "m1", bodyOf(job("j1", url)))
			j := i.until(t, "j1")
			check.That(t, j.Status == contracts.ImportFailed && j.Code == c.code && j.Error == c.message && j.Step == c.step && j.Attempt == c.attempts,
				"failed as %+v", j.ImportStatus)
			letters := i.settled(t)
			check.That(t, letters == c.letters, "%d dead letters, want %d", letters, c.letters)
			check.That(t, i.far.total() == c.fetches && i.chef.total() == c.extracted, "%d fetches, %d extractions", i.far.total(), i.chef.total())
			reported := i.keeper.reportedTo("j1")
			check.That(t, reported[len(reported)-1] == contracts.ImportFailed, "the store was told %v", reported)
		})
	}
}

// A failure that passes is not reported, and steps that were done before are not done again.
func TestWhatPassesIsTriedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		i.far.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
			if i.far.total() < 3 {
				return nil, &source.Error{Code: contracts.CodeNetwork, Retryable: true, Message: "no way there"}
			}
			return video(req.URL), nil
		}
		i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
			if i.chef.total() < 3 {
				return recipe.Recipe{}, errFar
			}
			return soup(in), nil
		}
		creates := 0
		i.keeper.create = func(context.Context, store.Draft) error {
			creates++
			if creates < 4 {
				return errFar
			}
			return nil
		}
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		check.Same(t, "dead letters", i.settled(t), 0)
		check.That(t, i.far.total() == 3 && i.chef.total() == 3, "%d fetches, %d extractions", i.far.total(), i.chef.total())
	})
}

// The recipe exists and the store cannot be told: it is told soon after it can be, and the recipe is not made again.
func TestAnEndThatTheStoreDoesNotKnowIsRepaired(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		var heard time.Time
		began, refused := time.Now(), 0
		var back time.Time // when the importer has just put off a job that it tried in vain
		i.keeper.setStatus = func(s contracts.ImportStatus) error {
			if s.Status != contracts.ImportReady {
				return nil
			}
			if back.IsZero() {
				refused++
				if refused%4 == 0 && time.Since(began) > 10*time.Minute {
					back = time.Now()
				}
				return errFar
			}
			heard = time.Now()
			return nil
		}
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		i.settledAfter(t, time.Hour)
		reported := i.keeper.reportedTo("j1")
		check.That(t, reported[len(reported)-1] == contracts.ImportReady, "the store was told %v", reported)
		took := heard.Sub(back)
		check.That(t, took <= soon, "the store was told %s after it was back", took)
		check.That(t, i.keeper.created["j1"] == 1 && i.far.total() == 1, "%d recipes, %d fetches", i.keeper.created["j1"], i.far.total())
	})
}

// settledAfter lets fake time pass until the queue is empty.
func (i *instance) settledAfter(t *testing.T, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamImportJobs))(t)
		if stream.CachedInfo().State.Msgs == 0 {
			return
		}
		check.Require(t, !time.Now().After(end), "%d jobs are left after %s", stream.CachedInfo().State.Msgs, limit)
		pauseFor(t.Context(), time.Second)
	}
}

// A job that has ended for the store is not worked, if the store says so.
func TestWhatTheStoreKnowsToHaveEndedIsSkipped(t *testing.T) {
	t.Parallel()
	for _, known := range []contracts.ImportStatus{
		{Status: contracts.ImportReady, RecipeID: "r-7"}, {Status: contracts.ImportFailed, Error: "gone"},
	} {
		i := newInstance(t, natstest.Server(t))
		i.keeper.status = func() (*contracts.ImportStatus, error) { return &known, nil }
		i.work(t)
		i.submit(t, job("j1", "v1"))
		j := i.until(t, "j1")
		check.That(t, j.Status == known.Status && j.RecipeID == known.RecipeID && j.Error == known.Error && i.far.total() == 0,
			"%+v after %d fetches", j, i.far.total())
	}
	i := newInstance(t, natstest.Server(t))
	i.keeper.status = func() (*contracts.ImportStatus, error) { return nil, errFar }
	i.work(t)
	i.submit(t, job("j1", "v1"))
	i.ready(t, "j1")
}

func TestAnotherJobUnderTheSameIDIsRefused(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.submit(t, job("j1", "v1"))
	_, _, err := i.Submit(t.Context(), Submission{ImportJob: job("j1", "v2")})
	check.That(t, errors.Is(err, ErrMismatch), "submitted: %v", err)
	i.publish(t, "jobs.import.normal.j1", "", bodyOf(job("j1", "v2")))
	i.work(t)
	stored := i.ready(t, "j1")
	check.That(t, strings.HasSuffix(stored.Recipe.Source.Ref, "v1"), "recipe of %s", stored.Recipe.Source.Ref)
	check.Same(t, "dead letters", i.settled(t), 1)
}

// A message that nobody can read blocks nobody.
func TestUnreadableMessagesAreDeadLettered(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	bad := []string{
		`{`, `{"job_id":"../../etc","owner_id":"a","url":"https://videos.test/v"}`, `{"job_id":"j","owner_id":"a","url":"file:///etc/passwd"}`,
		`{"job_id":"a/b","owner_id":"a","url":"https://videos.test/v"}`, `{"job_id":"j"}`,
	}
	for n, body := range bad {
		i.publish(t, fmt.Sprintf("jobs.import.normal.bad%d", n), "", body)
	}
	i.work(t)
	i.submit(t, job("j1", "v1"))
	i.ready(t, "j1")
	check.Same(t, "dead letters", i.settled(t), uint64(len(bad)))
}

func TestCancelBeforeAndDuring(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	begun := make(chan struct{})
	i.far.fetch = func(ctx context.Context, _ source.Request, _ func(float64)) (*source.Material, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	i.submit(t, job("queued", "v1"))
	j, err := i.Cancel(t.Context(), "queued")
	check.That(t, err == nil && j.Code == contracts.CodeCancelled, "%+v, %v", j, err)
	i.work(t)
	i.submit(t, job("running", "v2"))
	<-begun
	check.OK(t, check.Err(i.Cancel(t.Context(), "running")))
	check.Same(t, "dead letters", i.settled(t), 0)
	for _, id := range []string{"queued", "running"} {
		j := i.until(t, id)
		check.That(t, j.Status == contracts.ImportFailed && j.Code == contracts.CodeCancelled, "%+v", j)
		reported := i.keeper.reportedTo(id)
		check.That(t, len(reported) != 0 && reported[len(reported)-1] == contracts.ImportFailed, "the store was told %v of %s", reported, id)
	}
	check.Same(t, "fetches", i.far.total(), 1)
	check.Is(t, check.Err(i.Cancel(t.Context(), "nobody")), ErrUnknownJob)
}

// The worker of a job that is cancelled, or whose record is removed, stops within moments although it is not told so.
func TestALostPushDoesNotKeepAWorkerAtACancelledJob(t *testing.T) {
	for name, take := range map[string]func(context.Context, *instance) error{
		"cancelled": func(ctx context.Context, i *instance) error { return check.Err(i.Cancel(ctx, "j1")) },
		"removed": func(ctx context.Context, i *instance) error {
			bucket, err := i.js.Stream(ctx, "KV_"+contracts.BucketImportJobs)
			return errors.Join(err, bucket.Purge(ctx))
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv)
			begun, over := make(chan struct{}), make(chan struct{})
			i.far.fetch = func(ctx context.Context, _ source.Request, _ func(float64)) (*source.Material, error) {
				close(begun)
				<-ctx.Done()
				close(over)
				return nil, ctx.Err()
			}
			i.work(t)
			i.submit(t, job("j1", "v1"))
			<-begun
			for _, subscription := range i.hub.subscriptions {
				check.OK(t, subscription.Unsubscribe())
			}
			began := time.Now()
			check.OK(t, take(t.Context(), i))
			<-over
			took := time.Since(began)
			check.That(t, took <= 2*recheck, "it took %s", took)
			check.Same(t, "dead letters", i.settled(t), 0)
		})
	}
}

// An attempt that was ended by an old record does not end its job.
func TestAnOldRecordDoesNotEndAJob(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	fresh := newRecord(job("j1", "v1"), "youtube:v1", time.Now().UTC())
	fresh.begin(1)
	check.OK(t, check.Err(i.update(t.Context(), "j1", func(*record) (*record, error) { return &fresh, nil })))
	a := &attempt{Service: i.Service, id: "j1", run: 1}
	err := a.outcome(t.Context(), errTakenBack)
	_, again := errors.AsType[*worker.SnoozeError](err)
	check.That(t, again, "%v: want the job delivered again", err)
}

// A job that failed runs again when a client asks for it, and only then. Time is fake: failures are kept for a while.
func TestRetryIsAnotherRun(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
			if i.chef.total() == 1 {
				return recipe.Recipe{}, extract.Failed(false, errFar, "the model refused")
			}
			return soup(in), nil
		}
		i.work(t)
		req := job("j1", "v1")
		i.submit(t, req)
		j := i.until(t, "j1")
		check.Require(t, j.Status == contracts.ImportFailed, "%+v", j)
		pauseFor(t.Context(), time.Minute)
		i.publish(t, "jobs.import.normal.j1", "again", bodyOf(req)) // is no retry
		i.submit(t, req)                                            // nor is this
		i.settled(t)
		check.Same(t, "extractions", i.chef.total(), 1)
		j, err := i.Retry(t.Context(), "j1")
		check.That(t, err == nil && j.Status == contracts.ImportQueued && j.Run == 2, "%+v, %v", j, err)
		i.ready(t, "j1")
		check.OK(t, check.Err(i.update(t.Context(), "j1", func(r *record) (*record, error) { // as far as a caller came that died
			r.enter(contracts.ImportQueued, 0)
			r.Run++
			return r, nil
		})))
		j, err = i.Retry(t.Context(), "j1")
		check.That(t, err == nil && j.Run == 3, "%+v, %v", j, err)
		i.ready(t, "j1")
		check.Same(t, "the transcript was fetched, times", i.far.total(), 1)
		check.Is(t, check.Err(i.Retry(t.Context(), "j1")), ErrNotFailed)
		check.Is(t, check.Err(i.Cancel(t.Context(), "j1")), ErrFinal)
	})
}
