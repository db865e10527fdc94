package imports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// Many jobs of one video at one moment, in two processes, each handed in several times and over any API: one fetch, one extraction, a
// recipe for each.
func TestOneVideoIsFetchedOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	a, b := newInstance(t, srv), newInstance(t, srv)
	const jobs = 20
	request := func(n int) contracts.ImportJob {
		req := job(fmt.Sprintf("j%d", n), "v1")
		req.OwnerID = fmt.Sprintf("owner%d", n)
		return req
	}
	for n := range jobs {
		req := request(n)
		queued := a.submit(t, req)
		check.That(t, queued.Status == contracts.ImportQueued && queued.SourceID == "youtube:v1" && queued.Run == 1, "submitted: %+v", queued)
		a.submit(t, req)
		a.publish(t, "jobs.import.normal."+req.JobID, "", bodyOf(req))
	}
	a.work(t)
	b.work(t)
	ids := map[string]bool{}
	for n := range jobs {
		ids[a.ready(t, request(n).JobID).ID] = true
	}
	check.Equal(t, a.deadLettersWhenIdle(t), 0, "dead letters")
	check.Equal(t, len(ids), jobs, "recipes for jobs")
	check.Equal(t, a.source.total()+b.source.total(), 1, "fetched, times")
	check.Equal(t, a.chef.total()+b.chef.total(), 1, "extracted, times")
	known, created, err := b.Submit(t.Context(), Submission{ImportJob: request(0)})
	check.That(t, err == nil && !created && known.Status == contracts.ImportReady, "submitted again: %+v, new: %t, %v", known, created, err)
}

// A page that has its recipe as data needs no extractor.
func TestAPageWithARecipeIsNotExtracted(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.source.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
		r := soup(inputOf(video(req.URL), source.TypeWeb))
		return &source.Material{ID: "url:1", URL: req.URL, Recipe: &r}, nil
	}
	i.work(t)
	req := job("j1", "page")
	req.SourceType = source.TypeWeb
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
	again := sub
	again.URL, again.SourceType = strings.TrimPrefix(sub.URL, "https://"), ""
	third, created, err := i.Submit(t.Context(), again)
	check.That(t, err == nil && !created && third.JobID == first.JobID, "another spelling of the source: %+v, %t, %v", third, created, err)
	again.URL = job("", "v2").URL
	_, _, err = i.Submit(t.Context(), again)
	check.ErrorIs(t, err, ErrMismatch)
	sub.OwnerID = "eve"
	other, created, err := i.Submit(t.Context(), sub)
	check.That(t, err == nil && created && other.JobID != first.JobID, "another owner's: %+v, %t, %v", other, created, err)
}

// A job whose source had another id in an earlier version goes on under it, and is the same job when it is submitted again.
func TestAJobOutlastsTheIDOfItsSource(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.submit(t, job("j1", "v1"))
	check.OK(t, check.Err(i.update(t.Context(), "j1", func(r *record) (*record, error) {
		r.SourceID = "web:earlier"
		return r, nil
	})))
	i.submit(t, job("j1", "v1"))
	i.work(t)
	i.ready(t, "j1")
	known, created, err := i.Submit(t.Context(), Submission{ImportJob: job("j1", "v1")})
	check.That(t, err == nil && !created && known.SourceID == "web:earlier", "%+v, %t, %v", known, created, err)
}

// TestJobIsQueuedOnceHoweverLongItWaits hands a job in again after the stream has forgotten its message ID.
func TestJobIsQueuedOnceHoweverLongItWaits(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		for range 3 {
			i.submit(t, job("j", "v"))
			check.Equal(t, messages(t, i.js, contracts.StreamImportJobs), 1, "messages are queued")
			natstest.Pass(10 * time.Minute)
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
		check.Equal(t, messages(t, i.js, contracts.StreamImportJobs), 2, "messages are queued")
		i.work(t)
		i.ready(t, "j")
	})
}

// A shared result that cannot be read is recomputed, and one of an earlier version of the reader is another's.
func TestAnUnreadableResultIsMadeAnew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		keep := func(step, value string) {
			key := check.Must(stepKey("youtube:v1", step))(t)
			claim := check.Must(i.flight.Begin(t.Context(), key, flight.BeginOptions{TTL: time.Minute}))(t)
			check.OK(t, check.Err(claim.Complete(t.Context(), []byte(value), time.Hour)))
		}
		keep("transcript-v1", "{}")
		keep("transcript-v1-"+source.Version, "{")
		i.work(t)
		i.submit(t, job("j1", "v1"))
		i.ready(t, "j1")
		check.Equal(t, i.source.total(), 1, "fetches")
		check.Equal(t, i.deadLettersWhenIdle(t), 0, "dead letters")
	})
}

// The conformance suite of the worker kills and stops the service, refuses a job for good and has it wait, each time in the step that
// creates the recipe, which is the effect of a job.
func TestConforms(t *testing.T) {
	workertest.Conform(t, workertest.Suite{
		Prepare: func(ctx context.Context, js jetstream.JetStream) error {
			return check.Err(provision.Apply(ctx, js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{}))
		},
		Effects: conformEffects, Job: conformJob, Service: conformService, Stream: contracts.StreamImportJobs,
	})
}

// conformJob is a job whose id is that of its video too. Its message id is the job's.
func conformJob(n int) *nats.Msg {
	id := fmt.Sprintf("conform-%d", n)
	return &nats.Msg{
		Subject: "jobs.import.normal." + id, Data: []byte(bodyOf(job(id, id))),
		Header: nats.Header{nats.MsgIdHdr: {contracts.MsgID(id)}},
	}
}

func conformService(ctx context.Context, env workertest.Env) error {
	recipes, err := store.New(env.JS, env.Logger)
	if err != nil {
		return err
	}
	i := &instance{source: &fakeSource{}, chef: &fakeExtractor{}, keeper: &fakeStore{Store: recipes}}
	i.keeper.create = func(ctx context.Context, d store.Draft) error { return env.Recorder.Reach(ctx, d.JobID) }
	s, err := New(ctx, env.JS, Config{
		ClaimTTL:  2 * time.Second, // the successor of a paused process waits for this
		Extractor: Extractor{Extractor: i.chef, Name: "chef"}, Fetcher: i.source, Logger: env.Logger, Store: i.keeper,
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
	recipes, err := store.New(js, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	list, _, err := recipes.List(ctx, store.Query{OwnerID: "ada"})
	effects := map[string]int{}
	for _, r := range list {
		effects[r.JobID]++
	}
	return effects, err
}

// TestProgressIsSeenByEveryInstance follows a job whose source tells how much it has fetched, on an instance that does not
// work. Each share is told once, at once, without another state; the second attempt does not begin with that of the first.
func TestProgressIsSeenByEveryInstance(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv), newInstance(t, srv)
		again := make(chan struct{})
		fetched := 0
		i.source.fetch = func(_ context.Context, req source.Request, progress func(float64)) (*source.Material, error) {
			fetched++
			for _, share := range []float64{0.25, 0.25, 0.5, 0.4, 2, 0.75} {
				natstest.Pass(500 * time.Millisecond)
				progress(share)
				if share == 0.5 { // the next one is too soon
					natstest.Pass(400 * time.Millisecond)
					progress(0.6)
				}
			}
			natstest.Pass(10 * time.Second)
			if fetched == 1 {
				return nil, &source.Error{Code: failure.Timeout, Message: "later", Retryable: true, Err: errors.New("later")}
			}
			<-again
			return video(req.URL), nil
		}
		i.work(t)
		i.submit(t, job("j", "v"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sub := check.Must(other.Subscribe(ctx, "j", 0))(t)
		defer sub.Close()
		var shares []float64
		changes := map[uint64]bool{}
		for {
			update := check.Must(sub.Next(ctx))(t)
			j := update.Job
			if j.Status.Final() {
				break
			}
			if j.Step != stepTranscript || j.Error != "" {
				continue // not begun, or put off
			}
			shares = append(shares, j.Progress)
			changes[update.Change] = true
			if j.Attempt == 2 && j.Progress == 0.75 {
				got, err := other.Get(ctx, "j")
				check.That(t, err == nil && got.Progress == 0.75, "Get: %+v, %v", got, err)
				close(again)
			}
		}
		want := []float64{0, 0.25, 0.5, 0.75}
		check.Equal(t, shares, append(want, want...)) // in one state for each attempt
		check.Equal(t, len(changes), 2, "states")
		j, err := other.Get(ctx, "j")
		check.That(t, err == nil && j.Status == contracts.ImportReady && j.Progress == 0, "at the end: %+v, %v", j, err)
	})
}

// TestProgressOfADeadWorkerIsNotShown has a worker die in mid-step, after it has recorded progress. While the next attempt is in
// the same step and has recorded none, the job has none.
func TestProgressOfADeadWorkerIsNotShown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		dead, next, other := newInstance(t, srv), newInstance(t, srv), newInstance(t, srv)
		dead.cutOff = true
		recorded, begun, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
		dead.source.fetch = func(ctx context.Context, _ source.Request, progress func(float64)) (*source.Material, error) {
			progress(0.5)
			close(recorded)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		next.source.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
			close(begun)
			<-end
			return video(req.URL), nil
		}
		dead.work(t)
		other.submit(t, job("j", "v"))
		<-recorded
		j, err := other.Get(t.Context(), "j")
		check.That(t, err == nil && j.Progress == 0.5 && j.Attempt == 1, "in the first attempt: %+v, %v", j, err)
		dead.js.Conn().Close()
		next.work(t)
		<-begun
		j = check.Must(other.Get(t.Context(), "j"))(t)
		check.That(t, j.Progress == 0 && j.Attempt == 2 && j.Step == stepTranscript, "in the second attempt: %+v, want no progress", j)
		close(end)
		other.ready(t, "j")
	})
}

// photos makes a source with a photo that is larger than a message of the server, and an extractor that looks
// at it.
func photos(i *instance, size int) (seen func() map[[32]byte]int, want [32]byte) {
	image := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := range image {
		image[at] = byte(random.Uint64())
	}
	i.source.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
		return &source.Material{ID: "photo:1", URL: req.URL, Image: image, ImageType: "image/jpeg"}, nil
	}
	looked := map[[32]byte]int{}
	i.chef.extract = func(_ context.Context, in extract.Input) (recipe.Recipe, error) {
		looked[sha256.Sum256(in.Image)]++
		in.Title = "Soup"
		return soup(in), nil
	}
	return func() map[[32]byte]int { return looked }, sha256.Sum256(image)
}

// A photo that does not fit into a message of the server is shared all the same: jobs of one photo fetch it once and get
// the very bytes. It is removed at the end of its time. Time is fake.
func TestLargePhotosAreSharedAndGo(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, func(_ *instance, c *Config) { c.TranscriptTTL = time.Hour })
		seen, want := photos(i, 3<<20)
		stop := i.work(t, func(c *worker.Config) { c.StepTTL = time.Hour })
		for n := range 3 {
			req := job(fmt.Sprint("j", n), "photo")
			req.OwnerID = fmt.Sprint("owner", n)
			i.submit(t, req)
		}
		for n := range 3 {
			i.ready(t, fmt.Sprint("j", n))
		}
		check.Equal(t, i.source.total(), 1, "fetches")
		check.Equal(t, seen(), map[[32]byte]int{want: 1}, "photos that were looked at")
		const objects = "OBJ_" + contracts.ObjectsImportSteps
		check.That(t, messages(t, i.js, objects) != 0, "the photo is not in the object bucket: the test would not see it stay")
		stop() // it would ask for jobs all the time
		pauseFor(t.Context(), 2*time.Hour)
		for _, stream := range []string{objects, "KV_" + contracts.BucketImportSteps} {
			left := messages(t, i.js, stream)
			check.That(t, left <= 0, "%d messages are left in %s", left, stream)
		}
	})
}

// A photo for which there is no room is each job's own: the job goes on with the photo that it has fetched.
func TestLargePhotosWithoutRoomAreNotShared(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		stream := check.Must(i.js.Stream(t.Context(), "OBJ_"+contracts.ObjectsImportSteps))(t)
		full := stream.CachedInfo().Config
		full.MaxBytes = 1 << 20
		check.OK(t, check.Err(i.js.UpdateStream(t.Context(), full)))
		seen, want := photos(i, 3<<20)
		i.work(t)
		i.submit(t, job("j1", "photo"))
		i.ready(t, "j1")
		check.That(t, i.source.total() == 1 && seen()[want] == 1, "%d fetches, looked at %d times", i.source.total(), seen()[want])
	})
}

var errService = errors.New("the service fails")

func always(error) verdict { return verdict{Again: true} }

// TestPausesAreTheDocumented checks delay = base × 2^attempt ± 20 %, and never under 100 ms.
func TestPausesAreTheDocumented(t *testing.T) {
	t.Parallel()
	for attempt, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		for range 100 {
			got := RetryPolicy{Base: 2 * time.Second}.Pause(attempt)
			check.Require(t, got >= want*8/10 && got <= want*12/10, "attempt %d: %s, want %s ± 20 %%", attempt, got, want)
		}
	}
	check.Equal(t, (RetryPolicy{Base: time.Millisecond}).Pause(0), 100*time.Millisecond, "result")
}

// A pause that is too long for an attempt ends the attempt; it is not made shorter.
func TestRepetitionsAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdict      verdict
		succeeds     int
		calls, again int
		fails        bool
		atLeast      time.Duration // the last pause
	}{
		"succeeds at once":      {verdict{Again: true}, 1, 1, 0, false, 0},
		"succeeds at last":      {verdict{Again: true}, 4, 4, 3, false, 3200 * time.Millisecond},
		"used up":               {verdict{Again: true}, 9, 4, 3, true, 3200 * time.Millisecond},
		"not worth a try again": {verdict{}, 9, 1, 0, true, 0},
		"wants half a minute":   {verdict{Again: true, After: 30 * time.Second}, 9, 4, 3, true, 30 * time.Second},
		"wants an hour":         {verdict{Again: true, After: time.Hour}, 9, 1, 0, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, again, paused := 0, 0, time.Duration(0)
			err := RetryPolicy{Base: time.Second, Retries: 3}.Do(t.Context(), func(context.Context) error {
				calls++
				if calls == c.succeeds {
					return nil
				}
				return errService
			}, func(error) verdict { return c.verdict }, func(_ int, pause time.Duration, _ error) { again, paused = again+1, pause })
			check.That(t, calls == c.calls && again == c.again && errors.Is(err, errService) == c.fails && paused >= c.atLeast,
				"%s: %d calls, %d repetitions, the last after %s, %v", name, calls, again, paused, err)
		})
	}
}

func TestPolicyText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]RetryPolicy{
		"3,500ms": {Base: 500 * time.Millisecond, Retries: 3}, "0, 1s": {Base: time.Second}, "20,1m": {Base: time.Minute, Retries: 20},
		"": {}, "3": {}, "x,1s": {}, "3,x": {}, "-1,1s": {}, "21,1s": {}, "3,2m": {}, "3,1ms": {},
	} {
		var got RetryPolicy
		err := got.UnmarshalText([]byte(text))
		check.That(t, (err == nil) == (want.Base > 0) && (err != nil || got == want), "%q is %+v, %v", text, got, err)
	}
}

func TestTheEndOfTheCallerEndsThePause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	err := RetryPolicy{Base: time.Hour, Retries: 3}.Do(ctx, func(context.Context) error { return errService }, always,
		func(int, time.Duration, error) { cancel(errService) })
	check.ErrorIs(t, err, errService)
}

// A file is what its digest says, whatever the bucket holds.
func TestAnotherContentIsNoFile(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
	defer s.Close()
	check.OK(t, check.Err(s.Put(t.Context(), "ada", "soup.vtt", []byte("soup"))))
	got, err := s.Get(t.Context(), sha256.Sum256([]byte("soup")))
	check.That(t, err == nil && string(got) == "soup", "%q, %v", got, err)
	digest := sha256.Sum256([]byte("stew"))
	key := check.Must(s.keyOf(digest, s.period()))(t)
	check.OK(t, check.Err(s.flight.Do(t.Context(), key, func(context.Context) ([]byte, error) { return []byte("soup"), nil },
		flight.DoOptions{TTL: time.Hour})))
	check.ErrorIs(t, check.Err(s.Get(t.Context(), digest)), source.ErrNoFile)
}

// A file that is sent again late in its TTL is there for half of the TTL from then, and at no moment is it missing.
func TestFileIsSentAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
		s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
		defer s.Close()
		content := []byte("soup")
		for range 10 {
			check.OK(t, check.Err(s.Put(t.Context(), "ada", "soup.vtt", content)))
			for range 29 {
				natstest.Pass(time.Minute)
				check.OK(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))))
			}
			natstest.Pass(30 * time.Second)
		}
		natstest.Pass(time.Hour)
		check.ErrorIs(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))), source.ErrNoFile)
	})
}

// An owner keeps no more than a share, over all instances and restarts, in few large files or many small ones, until time has made room.
// Others send theirs, even the same file at the same moment.
func TestAnOwnerKeepsAShare(t *testing.T) {
	for size, most := range map[int]int{60 << 10: 4, 1: 254} {
		natstest.RunBubble(t, fmt.Sprint(size), func(t *testing.T, srv *natsrun.Server) {
			_, js := natstest.Connect(t, srv)
			check.OK(t,
				check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
			objects := check.Must(js.Stream(t.Context(), "OBJ_"+contracts.ObjectsImportSteps))(t).CachedInfo().Config
			objects.MaxBytes = 1 << 20
			check.OK(t, check.Err(js.UpdateStream(t.Context(), objects)))
			open := func() *Files { return check.Must(OpenFiles(t.Context(), js, nil, 64<<10, time.Hour))(t) }
			a, b := open(), open()
			defer b.Close()
			put := func(s *Files, owner string, n int) error {
				return check.Err(s.Put(t.Context(), owner, "soup.vtt", fmt.Appendf(make([]byte, size), "%05d", n)))
			}
			fill := func(from int) (n int) {
				for ; n <= most; n++ {
					if err := put([]*Files{a, b}[n%2], "mallory", from+n); err != nil {
						p := service.ErrorMapper(Problem).Of(err)
						check.That(t, p.Status == http.StatusTooManyRequests && p.Code == "QUOTA_FILES", "%+v of %v", p, err)
						break
					}
				}
				return n
			}
			check.Equal(t, fill(0), most, "files")
			check.OK(t, put(a, "mallory", 0)) // is there
			for n := range 4 {
				var both sync.WaitGroup
				both.Go(func() { _ = put(a, "mallory", 1000+n) }) // if ada's is there first
				both.Go(func() { check.OK(t, put([]*Files{a, b}[n%2], "ada", 1000+n)) })
				both.Wait()
			}
			a.Close()
			a = open()
			defer a.Close()
			check.Equal(t, fill(2000), 0, "files after a restart")
			natstest.Pass(15 * time.Minute)
			check.Equal(t, fill(3000), (most+3)/4, "files after a quarter of the time")
			natstest.Pass(time.Hour)
			check.Equal(t, fill(4000), most, "files after all of it")
		})
	}
}
