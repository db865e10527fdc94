package imports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain. No test's outcome depends on it otherwise.
func patience() time.Duration {
	if time.Now().Year() == 2000 { // fake time costs nothing
		return time.Hour
	}
	return time.Minute
}

// far is a source that counts, and answers as the test sets it: by default each URL is a video of its own.
type far struct {
	fetch func(ctx context.Context, req source.Request, progress func(float64)) (*source.Material, error)

	mu    sync.Mutex
	calls map[string]int
}

func (*far) Identify(_ context.Context, req source.Request) (string, error) {
	if strings.Contains(req.URL, "unsupported") {
		return "", &source.Error{Code: contracts.CodeUnavailable, Message: "This address is not supported"}
	}
	if strings.HasPrefix(req.URL, "https://short.test/") {
		return "web:" + req.URL, nil
	}
	return "youtube:" + req.URL[strings.LastIndexByte(req.URL, '/')+1:], nil
}

func (f *far) Fetch(ctx context.Context, req source.Request, progress func(float64)) (*source.Material, error) {
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

func (f *far) total() (n int) {
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

// chef is an extractor that makes the same recipe of everything, and counts.
type chef struct {
	extract func(ctx context.Context, in extract.Input) (recipe.Recipe, error)

	mu    sync.Mutex
	calls int
}

func (c *chef) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	c.mu.Lock()
	c.calls++
	c.mu.Unlock()
	if c.extract != nil {
		return c.extract(ctx, in)
	}
	return soup(in), nil
}

func (c *chef) total() int {
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

// keeper is a store that counts the recipes that are created, in front of the one of the bucket, and fails when the test
// wants it to.
type keeper struct {
	store.Store

	status    func() (*contracts.ImportStatus, error)
	setStatus func(contracts.ImportStatus) error
	create    func(ctx context.Context, d store.Draft) error

	mu       sync.Mutex
	created  map[string]int
	reported map[string][]contracts.ImportState
}

func (k *keeper) Status(ctx context.Context, id string) (*contracts.ImportStatus, error) {
	if k.status != nil {
		return k.status()
	}
	return k.Store.Status(ctx, id)
}

func (k *keeper) SetStatus(_ context.Context, id string, status contracts.ImportStatus) error {
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

func (k *keeper) Create(ctx context.Context, d store.Draft) (string, error) {
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

func (k *keeper) reportedTo(id string) []contracts.ImportState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.reported[id])
}

// instance is a service with the connection that an instance has.
type instance struct {
	*Service

	cutOff bool // it may complain when it stops

	far     *far
	chef    *chef
	keeper  *keeper
	js      jetstream.JetStream
	recipes *kvstore.Store
}

func newInstance(t *testing.T, srv *natsrun.Server, mutate ...func(*instance, *Config)) *instance {
	t.Helper()
	return newInstanceOn(t, srv, nil, mutate...)
}

// newInstanceOn is newInstance, with options for its connection.
func newInstanceOn(t *testing.T, srv *natsrun.Server, options []nats.Option, mutate ...func(*instance, *Config)) *instance {
	t.Helper()
	_, js := natstest.Connect(t, srv, options...)
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	recipes, err := kvstore.New(js, slog.New(slog.DiscardHandler))
	check.OK(t, err)
	i := &instance{far: &far{}, chef: &chef{}, keeper: &keeper{Store: recipes}, js: js, recipes: recipes}
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Store: i.keeper}
	for _, m := range mutate {
		m(i, &cfg)
	}
	cfg.Fetcher, cfg.Extractor = i.far, Extractor{Extractor: i.chef, Name: "chef", Version: "1"}
	i.Service = check.Must(New(t.Context(), js, cfg))(t)
	t.Cleanup(func() {
		err := i.Close()
		check.That(t, err == nil || i.cutOff, "%v", err)
	})
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
	w, err := worker.New(i.js, cfg)
	if err == nil {
		err = worker.Handle(w, contracts.ImportJobsSubjects, Policy(), i.Work)
	}
	check.OK(t, err)
	return natstest.Background(t, func(ctx context.Context) error {
		err := w.Run(ctx)
		if i.cutOff {
			return nil
		}
		return err
	})
}

func job(id, video string) contracts.ImportJob {
	return contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: contracts.SourceYouTube, URL: "https://videos.test/" + video}
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
func (i *instance) ready(t *testing.T, id string) kvstore.Stored {
	t.Helper()
	j := i.until(t, id)
	check.Require(t, j.Status == contracts.ImportReady, "job %s: %+v", id, j)
	return check.Must(i.recipes.Get(t.Context(), j.RecipeID))(t)
}

// settled waits until the queue is empty, and returns the number of dead letters.
func (i *instance) settled(t *testing.T) (letters uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	for {
		stream := check.Must(i.js.Stream(ctx, contracts.StreamImportJobs))(t)
		if stream.CachedInfo().State.Msgs == 0 {
			break
		}
		check.Require(t, pauseFor(ctx, 20*time.Millisecond), "%d jobs are left", stream.CachedInfo().State.Msgs)
	}
	stream := check.Must(i.js.Stream(ctx, contracts.StreamDead))(t)
	return stream.CachedInfo().State.Msgs
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
