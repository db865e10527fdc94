package imports

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

// photos makes a source of what is larger than a message of the server, and an extractor that looks at it.
func photos(i *instance, size int) (seen func() map[[32]byte]int, want [32]byte) {
	image := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := range image {
		image[at] = byte(random.Uint64())
	}
	i.far.fetch = func(_ context.Context, req source.Request, _ func(string, float64)) (*source.Material, error) {
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
	s, err := js.Stream(t.Context(), stream)
	check.OK(t, err)
	return s.CachedInfo().State.Msgs
}

// What does not fit into a message of the server is shared all the same: jobs of one photo fetch it once and get the very
// bytes. It goes with the time for which it is kept. Time is fake.
func TestLargePhotosAreSharedAndGo(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, func(_ *instance, c *Config) { c.TranscriptTTL, c.ExtractTTL = time.Hour, time.Hour })
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

// A photo for which there is no room is each job's own: the job goes on with what it has fetched.
func TestLargePhotosWithoutRoomAreNotShared(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		stream, err := i.js.Stream(t.Context(), "OBJ_"+contracts.ObjectsImportSteps)
		check.OK(t, err)
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
