package imports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain. No test's outcome depends on it otherwise.
func patience() time.Duration {
	if time.Now().Year() == 2000 { // fake time costs nothing
		return time.Hour
	}
	return time.Minute
}

// fakeSource is a source that counts, and answers as the test sets it: by default each URL is its own video.
type fakeSource struct {
	fetch func(ctx context.Context, req source.Request, progress func(float64)) (*source.Material, error)

	mu    sync.Mutex
	calls map[string]int
}

func (*fakeSource) Identify(_ context.Context, req source.Request) (string, error) {
	if strings.Contains(req.URL, "unsupported") {
		return "", &source.Error{Code: failure.Unavailable, Message: "This address is not supported"}
	}
	if strings.HasPrefix(req.URL, "https://short.test/") {
		return "web:" + req.URL, nil
	}
	return "youtube:" + req.URL[strings.LastIndexByte(req.URL, '/')+1:], nil
}

func (f *fakeSource) Fetch(ctx context.Context, req source.Request, progress func(float64)) (*source.Material, error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[req.URL]++
	f.mu.Unlock()
	if f.fetch != nil {
		return f.fetch(ctx, req, progress)
	}
	return video(req.URL), nil
}

func (f *fakeSource) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

// video is a source that says enough.
func video(url string) *source.Material {
	return &source.Material{
		ID: "youtube:" + url, URL: url, Title: "Soup of " + url, Language: "en", Duration: time.Minute,
		Transcript: caption.Transcript{Timed: true, Segments: []caption.Segment{
			{Start: time.Second, Dur: 4 * time.Second, Text: "Cut 2 onions and fry them in 1 tablespoon of oil."},
			{Start: 5 * time.Second, Dur: 4 * time.Second, Text: "Add 1 litre of water and boil for 20 minutes. " + url},
		}},
	}
}

// fakeExtractor is an extractor that makes the same recipe of everything, and counts.
type fakeExtractor struct {
	extract func(ctx context.Context, in extract.Input) (recipe.Recipe, error)

	mu    sync.Mutex
	calls int
}

func (c *fakeExtractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	c.mu.Lock()
	c.calls++
	c.mu.Unlock()
	if c.extract != nil {
		return c.extract(ctx, in)
	}
	return soup(in), nil
}

func (c *fakeExtractor) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func soup(in extract.Input) recipe.Recipe {
	return recipe.Recipe{
		Title: in.Title, Source: in.Source, Ingredients: []recipe.Ingredient{{Qty: "2", Item: "onions"}},
		Steps: []recipe.Step{{Index: 1, Text: "Cut 2 onions and fry them in 1 tablespoon of oil."}},
	}
}

// fakeStore is a store that counts the recipes that are created, in front of the one of the bucket, and fails when the test
// wants it to.
type fakeStore struct {
	store.Store

	status    func() (*contracts.ImportStatus, error)
	setStatus func(contracts.ImportStatus) error
	create    func(ctx context.Context, d store.Draft) error

	mu       sync.Mutex
	created  map[string]int
	reported map[string][]contracts.ImportState
}

func (k *fakeStore) Status(ctx context.Context, id string) (*contracts.ImportStatus, error) {
	if k.status != nil {
		return k.status()
	}
	return k.Store.Status(ctx, id)
}

func (k *fakeStore) SetStatus(_ context.Context, id string, status contracts.ImportStatus) error {
	if k.setStatus != nil {
		if err := k.setStatus(status); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reported == nil {
		k.reported = map[string][]contracts.ImportState{}
	}
	k.reported[id] = append(k.reported[id], status.Status)
	return nil
}

func (k *fakeStore) Create(ctx context.Context, d store.Draft) (string, error) {
	if k.create != nil {
		if err := k.create(ctx, d); err != nil {
			return "", err
		}
	}
	k.mu.Lock()
	if k.created == nil {
		k.created = map[string]int{}
	}
	k.created[d.JobID]++
	k.mu.Unlock()
	return k.Store.Create(ctx, d)
}

// wantLast checks the last state of a job in the store.
func (k *fakeStore) wantLast(t *testing.T, id string, want contracts.ImportState) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	told := k.reported[id]
	check.That(t, len(told) > 0 && told[len(told)-1] == want, "the store was told %v of %s, want %s last", told, id, want)
}

// instance is a service with the connection that an instance has.
type instance struct {
	*Service

	cutOff bool // it may complain when it stops

	source  *fakeSource
	chef    *fakeExtractor
	keeper  *fakeStore
	js      jetstream.JetStream
	recipes *store.Bucket
}

func newInstance(t *testing.T, srv *natsrun.Server, mutate ...func(*instance, *Config)) *instance {
	t.Helper()
	return newInstanceOn(t, srv, nil, mutate...)
}

// newInstanceOn is newInstance, with options for its connection.
func newInstanceOn(t *testing.T, srv *natsrun.Server, options []nats.Option, mutate ...func(*instance, *Config)) *instance {
	t.Helper()
	_, js := natstest.Connect(t, srv, options...)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	recipes := check.Must(store.New(js, slog.New(slog.DiscardHandler)))(t)
	i := &instance{source: &fakeSource{}, chef: &fakeExtractor{}, keeper: &fakeStore{Store: recipes}, js: js, recipes: recipes}
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Store: i.keeper}
	for _, m := range mutate {
		m(i, &cfg)
	}
	cfg.Fetcher, cfg.Extractor = i.source, Extractor{Extractor: i.chef, Name: "chef", Version: "1"}
	i.Service = check.Must(New(t.Context(), js, cfg))(t)
	t.Cleanup(i.Close)
	return i
}

// work has the instance work jobs until stop, or the end of the test.
func (i *instance) work(t *testing.T, mutate ...func(*worker.Config)) (stop func()) {
	t.Helper()
	cfg := worker.Config{
		AckWait: 5 * time.Second, AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "importer", Hooks: worker.Hooks{Settled: i.Settled},
		Logger: slog.New(slog.DiscardHandler), SoftStop: -1, StepBucket: contracts.BucketImportSteps, Stream: contracts.StreamImportJobs,
	}
	for _, m := range mutate {
		m(&cfg)
	}
	w := check.Must(worker.New(i.js, cfg))(t)
	check.OK(t, worker.Handle(w, contracts.ImportJobsSubjects, Policy(), i.Work))
	return natstest.Background(t, func(ctx context.Context) error {
		err := w.Run(ctx)
		if i.cutOff {
			return nil
		}
		return err
	})
}

func job(id, video string) contracts.ImportJob {
	return contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: source.TypeYouTube, URL: "https://videos.test/" + video}
}

func (i *instance) submit(t *testing.T, req contracts.ImportJob) Job {
	t.Helper()
	j, _, err := i.Submit(t.Context(), Submission{ImportJob: req})
	check.OK(t, err)
	return j
}

// until follows a job until it is as the test wants it, which is final by default.
func (i *instance) until(t *testing.T, id string, wanted ...func(Job) bool) Job {
	t.Helper()
	if len(wanted) == 0 {
		wanted = append(wanted, func(j Job) bool { return j.Status.Final() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	sub, err := i.Subscribe(ctx, id, 0)
	for errors.Is(err, ErrUnknownJob) && pauseFor(ctx, 20*time.Millisecond) {
		sub, err = i.Subscribe(ctx, id, 0)
	}
	check.Require(t, err == nil, "job %s: %v", id, err)
	defer sub.Close()
	for {
		update, err := sub.Next(ctx)
		check.Require(t, err == nil, "job %s: %v", id, err)
		if wanted[0](update.Job) {
			return update.Job
		}
	}
}

// ready follows a job until it is, and returns its recipe.
func (i *instance) ready(t *testing.T, id string) store.Stored {
	t.Helper()
	j := i.until(t, id)
	check.Require(t, j.Status == contracts.ImportReady, "job %s: %+v", id, j)
	return check.Must(i.recipes.Get(t.Context(), j.RecipeID))(t)
}

// deadLettersWhenIdle waits until the queue is empty, and returns the number of dead letters.
func (i *instance) deadLettersWhenIdle(t *testing.T) (letters uint64) {
	t.Helper()
	i.untilIdle(t, 20*time.Millisecond)
	return messages(t, i.js, contracts.StreamDead)
}

// untilIdle waits until the queue is empty, and looks every so often.
func (i *instance) untilIdle(t *testing.T, every time.Duration) {
	t.Helper()
	for end := time.Now().Add(patience()); messages(t, i.js, contracts.StreamImportJobs) > 0; pauseFor(t.Context(), every) {
		check.Require(t, !time.Now().After(end), "jobs are left")
	}
}

// messages returns how many messages a stream holds.
func messages(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	return check.Must(js.Stream(t.Context(), stream))(t).CachedInfo().State.Msgs
}

// publish puts a message into the stream as anybody could.
func (i *instance) publish(t *testing.T, subject, msgID, body string) {
	t.Helper()
	msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	if msgID != "" {
		msg.Header.Set(nats.MsgIdHdr, msgID)
	}
	check.OK(t, check.Err(i.js.PublishMsg(t.Context(), msg)))
}

func bodyOf(req contracts.ImportJob) string {
	return fmt.Sprintf(`{"job_id":%q,"owner_id":%q,"source_type":%q,"url":%q,"requested_at":"2024-01-01T00:00:00Z"}`,
		req.JobID, req.OwnerID, req.SourceType, req.URL)
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errOutOfOrder = errors.New("the remote service is out of order")

type fetchFunc = func(context.Context, source.Request, func(float64)) (*source.Material, error)

func fetchFails(err error) fetchFunc { return fetchFailsFor(err, func(string) bool { return true }) }

// fetchFailsFor fails for bad addresses, and finds a video at all others.
func fetchFailsFor(err error, bad func(url string) bool) fetchFunc {
	return func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
		if bad(req.URL) {
			return nil, err
		}
		return video(req.URL), nil
	}
}

func extractFails(err error) func(context.Context, extract.Input) (recipe.Recipe, error) {
	return func(context.Context, extract.Input) (recipe.Recipe, error) { return recipe.Recipe{}, err }
}

// TestFailuresAreToldByCodeAndMessage makes each step fail in each way. A temporary failure is tried again as often as is
// documented before it is reported, and ends in the dead letters; a permanent one is reported at once and does not. Time is
// fake.
func TestFailuresAreToldByCodeAndMessage(t *testing.T) {
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
		"unsupported address": {sabotage: func(*instance) {}, code: failure.Unavailable, message: "This address is not supported", attempts: 1},
		"the source fails": {
			sabotage: func(i *instance) {
				i.source.fetch = fetchFails(&source.Error{Code: failure.Network, Retryable: true, RetryAfter: time.Minute, Message: "no address"})
			},
			code: failure.Network, message: "no address", step: stepTranscript, attempts: 5, letters: 1, fetches: 5,
		},
		"extraction fails": {
			sabotage: func(i *instance) { i.chef.extract = extractFails(errOutOfOrder) }, code: failure.ExtractionFailed,
			message: "AI extraction failed: something went wrong", step: stepExtract, attempts: 1, letters: 1, fetches: 1, extracted: 3,
		},
		"recipe without steps": {
			sabotage: func(i *instance) {
				i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
					r := soup(in)
					r.Steps = nil
					return r, nil
				}
			},
			code: failure.InvalidRecipe, message: "Invalid recipe data from AI", step: stepExtract, attempts: 1, fetches: 1, extracted: 1,
		},
		"no recipe": {
			sabotage: func(i *instance) { i.chef.extract = extractFails(fmt.Errorf("rules: %w", extract.ErrNoRecipe)) },
			code:     failure.ExtractionFailed, message: "AI extraction failed: no recipe was found in the source", step: stepExtract,
			attempts: 1, fetches: 1, extracted: 1,
		},
		"store fails": {
			sabotage: func(i *instance) {
				i.keeper.create = func(context.Context, store.Draft) error {
					return &store.Error{Op: "create recipe", Status: 503, Retryable: true, Err: errOutOfOrder}
				}
			},
			code: failure.StoreFailed, step: stepCreate, attempts: 1, letters: 1, fetches: 1, extracted: 1,
			message: "Failed to create recipe: create recipe: the store answered 503: the remote service is out of order",
		},
		"status cannot be told": {
			sabotage: func(i *instance) {
				i.keeper.setStatus = func(s contracts.ImportStatus) error {
					if s.Status == contracts.ImportRunning {
						return errOutOfOrder
					}
					return nil
				}
			},
			code: failure.StoreFailed, message: "Status update failed: the remote service is out of order", attempts: 1, letters: 1,
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
			check.That(t, j.Status == contracts.ImportFailed && j.Code == c.code && j.Error == c.message && j.Step == c.step, "%+v", j.ImportStatus)
			check.Equal(t, j.Attempt, c.attempts, "attempts")
			check.Equal(t, i.deadLettersWhenIdle(t), c.letters, "dead letters")
			check.That(t, i.source.total() == c.fetches && i.chef.total() == c.extracted, "%d fetches, %d extractions", i.source.total(), i.chef.total())
			i.keeper.wantLast(t, "j1", contracts.ImportFailed)
		})
	}
}

// A failure that passes is not reported, and steps that were done before are not done again.
func TestWhatPassesIsTriedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		away := &source.Error{Code: failure.Network, Retryable: true, Message: "no way there"}
		i.source.fetch = fetchFailsFor(away, func(string) bool { return i.source.total() < 3 })
		i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
			if i.chef.total() < 3 {
				return recipe.Recipe{}, errOutOfOrder
			}
			return soup(in), nil
		}
		creates := 0
		i.keeper.create = func(context.Context, store.Draft) error {
			creates++
			if creates < 4 {
				return errOutOfOrder
			}
			return nil
		}
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		check.Equal(t, i.deadLettersWhenIdle(t), 0, "dead letters")
		check.That(t, i.source.total() == 3 && i.chef.total() == 3, "%d fetches, %d extractions", i.source.total(), i.chef.total())
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
				return errOutOfOrder
			}
			heard = time.Now()
			return nil
		}
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		i.untilIdle(t, time.Second)
		i.keeper.wantLast(t, "j1", contracts.ImportReady)
		took := heard.Sub(back)
		check.That(t, took <= soon, "the store was told %s after it was back", took)
		check.That(t, i.keeper.created["j1"] == 1 && i.source.total() == 1, "%d recipes, %d fetches", i.keeper.created["j1"], i.source.total())
	})
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
		check.That(t, j.Status == known.Status && j.RecipeID == known.RecipeID && j.Error == known.Error && i.source.total() == 0,
			"%+v after %d fetches", j, i.source.total())
	}
	i := newInstance(t, natstest.Server(t))
	i.keeper.status = func() (*contracts.ImportStatus, error) { return nil, errOutOfOrder }
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
	check.Equal(t, i.deadLettersWhenIdle(t), 1, "dead letters")
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
	check.Equal(t, i.deadLettersWhenIdle(t), uint64(len(bad)), "dead letters")
}

func TestCancelBeforeAndDuring(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	begun := make(chan struct{})
	i.source.fetch = func(ctx context.Context, _ source.Request, _ func(float64)) (*source.Material, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	i.submit(t, job("queued", "v1"))
	j, err := i.Cancel(t.Context(), "queued")
	check.That(t, err == nil && j.Code == failure.Cancelled, "%+v, %v", j, err)
	i.work(t)
	i.submit(t, job("running", "v2"))
	<-begun
	check.OK(t, check.Err(i.Cancel(t.Context(), "running")))
	check.Equal(t, i.deadLettersWhenIdle(t), 0, "dead letters")
	for _, id := range []string{"queued", "running"} {
		j := i.until(t, id)
		check.That(t, j.Status == contracts.ImportFailed && j.Code == failure.Cancelled, "%+v", j)
		i.keeper.wantLast(t, id, contracts.ImportFailed)
	}
	check.Equal(t, i.source.total(), 1, "fetches")
	check.ErrorIs(t, check.Err(i.Cancel(t.Context(), "nobody")), ErrUnknownJob)
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
			i.source.fetch = func(ctx context.Context, _ source.Request, _ func(float64)) (*source.Material, error) {
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
			check.Equal(t, i.deadLettersWhenIdle(t), 0, "dead letters")
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
				return recipe.Recipe{}, extract.Failed(false, errOutOfOrder, "the model refused")
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
		i.deadLettersWhenIdle(t)
		check.Equal(t, i.chef.total(), 1, "extractions")
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
		check.Equal(t, i.source.total(), 1, "the transcript was fetched, times")
		check.ErrorIs(t, check.Err(i.Retry(t.Context(), "j1")), ErrNotFailed)
		check.ErrorIs(t, check.Err(i.Cancel(t.Context(), "j1")), ErrFinal)
	})
}

// TestAnEndThatIsOvertakenDoesNotStay has one attempt tell that a job has failed, while another makes its recipe and tells
// that: however the first ends, the last status that the store gets is the right one.
func TestAnEndThatIsOvertakenDoesNotStay(t *testing.T) {
	t.Parallel()
	for _, arrives := range []error{nil, errOutOfOrder} {
		t.Run(fmt.Sprint(arrives), func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, natstest.Server(t))
			end := func(status contracts.ImportState) *record {
				r, err := i.update(t.Context(), "j1", func(r *record) (*record, error) {
					if r == nil {
						fresh := newRecord(job("j1", "v1"), "v1", time.Now())
						r = &fresh
					}
					r.enter(status, 1)
					return r, nil
				})
				check.ErrorIs(t, err, nil)
				return &r
			}
			first := true
			i.keeper.setStatus = func(s contracts.ImportStatus) error {
				if s.Status != contracts.ImportFailed {
					return nil
				}
				if first {
					first = false
					refused, err := i.report(t.Context(), end(contracts.ImportReady))
					check.That(t, refused == nil && err == nil, "%v, %v", refused, err)
				}
				i.keeper.mu.Lock()
				defer i.keeper.mu.Unlock()
				i.keeper.reported["j1"] = append(i.keeper.reported["j1"], s.Status)
				return arrives
			}
			refused, err := i.report(t.Context(), end(contracts.ImportFailed))
			check.That(t, refused == nil && errors.Is(err, arrives), "%v, %v; want %v", refused, err, arrives)
			now, _, err := i.read(t.Context(), "j1")
			check.That(t, err == nil && now.Status == contracts.ImportReady && now.Reported == (arrives == nil), "%+v, %v", now, err)
			refused, err = i.report(t.Context(), &now)
			check.That(t, refused == nil && err == nil, "%v, %v", refused, err)
			i.keeper.wantLast(t, "j1", contracts.ImportReady)
		})
	}
}
