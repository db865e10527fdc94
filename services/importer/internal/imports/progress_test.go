package imports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

// TestProgressIsSeenByEveryInstance follows a job whose source tells how much it has fetched, on an instance that does not
// work. Each share is told once, at once, without another state; the second attempt does not begin with that of the first.
func TestProgressIsSeenByEveryInstance(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv), newInstance(t, srv)
		again := make(chan struct{})
		fetched := 0
		i.far.fetch = func(_ context.Context, req source.Request, progress func(float64)) (*source.Material, error) {
			fetched++
			for _, share := range []float64{0.25, 0.25, 0.5, 0.4, 2, 0.75} {
				elapse(500 * time.Millisecond)
				progress(share)
				if share == 0.5 { // the next one is too soon
					elapse(400 * time.Millisecond)
					progress(0.6)
				}
			}
			elapse(10 * time.Second)
			if fetched == 1 {
				return nil, &source.Error{Code: contracts.CodeTimeout, Message: "later", Retryable: true, Err: errors.New("later")}
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
		if want = append(want, want...); !slices.Equal(shares, want) || len(changes) != 2 {
			t.Errorf("told %v in %d states, want %v in one for each attempt", shares, len(changes), want)
		}
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
		dead.far.fetch = func(ctx context.Context, _ source.Request, progress func(float64)) (*source.Material, error) {
			progress(0.5)
			close(recorded)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		next.far.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
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
		if j, err := other.Get(t.Context(), "j"); err != nil || j.Progress != 0 || j.Attempt != 2 || j.Step != stepTranscript {
			t.Errorf("in the second attempt: %+v, %v, want no progress", j, err)
		}
		close(end)
		other.ready(t, "j")
	})
}

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only

// photos makes a source with a photo that is larger than a message of the server, and an extractor that looks
// at it.
func photos(i *instance, size int) (seen func() map[[32]byte]int, want [32]byte) {
	image := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := range image {
		image[at] = byte(random.Uint64())
	}
	i.far.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
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

func messages(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s := check.Must(js.Stream(t.Context(), stream))(t)
	return s.CachedInfo().State.Msgs
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
		if i.far.total() != 1 || len(seen()) != 1 || seen()[want] != 1 {
			t.Errorf("%d fetches, %d photos were looked at, the one %d times", i.far.total(), len(seen()), seen()[want])
		}
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
		if i.far.total() != 1 || seen()[want] != 1 {
			t.Errorf("%d fetches, looked at %d times", i.far.total(), seen()[want])
		}
	})
}

var errService = errors.New("far")

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
	check.Same(t, "result", (RetryPolicy{Base: time.Millisecond}).Pause(0), 100*time.Millisecond)
}

func TestRepetitionsAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		judge        func(error) verdict
		succeeds     int
		calls, again int
		fails        bool
	}{
		"succeeds at once":      {always, 1, 1, 0, false},
		"succeeds at last":      {always, 4, 4, 3, false},
		"used up":               {always, 9, 4, 3, true},
		"not worth a try again": {func(error) verdict { return verdict{} }, 9, 1, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, again := 0, 0
			err := RetryPolicy{Base: time.Second, Retries: 3}.Do(t.Context(), func(context.Context) error {
				calls++
				if calls == c.succeeds {
					return nil
				}
				return errService
			}, c.judge, func(int, time.Duration, error) { again++ })
			check.That(t, calls == c.calls && again == c.again && errors.Is(err, errService) == c.fails,
				"%s: %d calls, %d repetitions, %v", name, calls, again, err)
		})
	}
}

// A pause that is too long for an attempt ends the attempt; it is not made shorter.
func TestAFarSideCanAskForTimeAndNotForEver(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{30 * time.Second: 30 * time.Second, 5 * time.Minute: 0, time.Hour: 0} {
		var paused time.Duration
		synctest.Test(t, func(t *testing.T) {
			err := RetryPolicy{Base: time.Second, Retries: 1}.Do(t.Context(), func(context.Context) error { return errService },
				func(error) verdict { return verdict{Again: true, After: asked} },
				func(_ int, pause time.Duration, _ error) { paused = pause })
			check.Is(t, err, errService)
		})
		check.Same(t, fmt.Sprintf("for %s", asked), paused, want)
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
	check.Is(t, err, errService)
}

// A file is what its digest says, whatever the bucket holds.
func TestAnotherContentIsNoFile(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
	defer s.Close()
	check.OK(t, check.Err(s.Put(t.Context(), "soup.vtt", []byte("soup"))))
	got, err := s.Get(t.Context(), sha256.Sum256([]byte("soup")))
	check.That(t, err == nil && string(got) == "soup", "%q, %v", got, err)
	digest := sha256.Sum256([]byte("stew"))
	key := check.Must(s.keyOf(digest, s.period()))(t)
	check.OK(t, check.Err(s.flight.Do(t.Context(), key, func(context.Context) ([]byte, error) { return []byte("soup"), nil },
		flight.DoOptions{TTL: time.Hour})))
	check.Is(t, check.Err(s.Get(t.Context(), digest)), source.ErrNoFile)
}

// A file that is sent again late in its TTL is there for half of the TTL from then, and at no moment is it missing.
func TestFileIsSentAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
		s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
		defer s.Close()
		content := []byte("soup")
		for range 10 {
			check.OK(t, check.Err(s.Put(t.Context(), "soup.vtt", content)))
			for range 29 {
				pass(time.Minute)
				check.OK(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))))
			}
			pass(30 * time.Second)
		}
		pass(time.Hour)
		check.Is(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))), source.ErrNoFile)
	})
}

// pass lets fake time pass: only in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time there
