package importer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// Points at which a worker does not die by its own hand, but is killed: yt-dlp is at work then.
const (
	inPage     = "yt-dlp asks for the page"
	inCaptions = "yt-dlp asks for the captions"
)

var points = []string{
	imports.PointRunning, imports.PointBegun, imports.PointFetching, imports.PointFetched, imports.PointShared, imports.PointTranscript,
	imports.PointSaved, imports.PointExtracting, imports.PointExtracted, imports.PointRecipe, imports.PointRecipeNoted,
	imports.PointCreated, imports.PointNoted, imports.PointReady, imports.PointEnded, imports.PointSettled,
}

// patience ends a test that waits in vain. No outcome depends on it otherwise.
const patience = 3 * time.Minute

// TestKilledWorkers kills worker processes at every point of the life of a job, and while yt-dlp is at work, while the Recipe
// Service has a bad day. Every job ends, and both sides agree on how. None has two recipes. No source is fetched twice but
// for those that a killed worker was fetching. No process is left, nor a temporary folder.
//
//	go test . -run KilledWorkers                     a few imports
//	go test . -run KilledWorkers -args -long         500, of videos
//	go test . -run KilledWorkers -args -seed N       with the choices of another run
func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	seed := crash.Seed(t)
	if crash.Long() {
		newRun(t, seed, true).play(500, append(slices.Clone(points), inPage, inCaptions))
		return
	}
	const rows = 4 // at the same time, because each of them waits most of its time
	for row := range rows {
		t.Run(fmt.Sprint("caption files ", row+1), func(t *testing.T) {
			t.Parallel()
			var at []string
			for i := row; i < len(points); i += rows {
				at = append(at, points[i])
			}
			newRun(t, seed, false).play(2*len(at)+2, at)
		})
	}
	t.Run("videos", func(t *testing.T) {
		t.Parallel()
		newRun(t, seed, true).play(4, []string{inPage, inCaptions})
	})
}

// A job that has killed two workers is worked alone, and is a dead letter when it kills two more: no other job is lost with it.
func TestAJobThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	c := newRun(t, crash.Seed(t), false)
	c.insert(8, sourcetest.Video{}) // of four videos, in jobs that the Recipe Service may fail
	killer := contracts.ImportJob{JobID: "killer", OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: c.site.URL + "/killer"}
	body := check.Must(contracts.Encode(killer))(t)
	check.OK(t, check.Err(c.js.Publish(t.Context(), "jobs.import.normal.killer", body)))
	for death := range 4 {
		w := c.spawn(duty{Killer: killer.URL})
		w.Died()
		check.That(t, death < 2 || strings.Contains(w.Output(), "killed beside 0\n"),
			"death %d: want it killed beside no other: %s", death, w.Output())
	}
	last := c.spawn(duty{Killer: killer.URL})
	check.Until(c, patience, "all jobs are done", func() bool { return last.Ended() || c.queued() == 0 })
	last.Stop()
	job, _ := c.job(killer.JobID)
	check.That(t, job.Status == contracts.ImportFailed && job.Code == contracts.CodeCrashed && job.Attempt == 5, "%+v", job)
	for _, job := range c.inserted {
		got, _ := c.job(job.JobID)
		check.That(t, got.Code != contracts.CodeCrashed && got.Status.Final(), "%+v", got)
	}
	dead := check.Must(c.js.Stream(t.Context(), contracts.StreamDead))(t)
	check.That(t, dead.CachedInfo().State.Msgs != 0, "there is no dead letter")
}

// run is some imports whose workers are killed.
type run struct {
	*testing.T

	dir     string // for temporary folders
	fetcher *source.Sources
	flight  *flight.Flight
	js      jetstream.JetStream
	random  *rand.Rand
	recipes *recipeService
	site    *captionSite
	url     string              // of NATS
	youTube *sourcetest.YouTube // nil when there are only caption files

	wasted   map[int]int // how often the captions of a video may have been fetched for nothing
	inserted []contracts.ImportJob
	videos   int
}

func newRun(t *testing.T, seed uint64, videos bool) *run {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	c := &run{
		T: t, dir: t.TempDir(), wasted: map[int]int{}, js: js, random: rand.New(rand.NewPCG(seed, 0)),
		recipes: newRecipeService(t, seed), site: newCaptionSite(t), url: srv.URL(),
	}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	var err error
	c.fetcher, err = source.New(source.Config{TempDir: t.TempDir()})
	check.OK(t, err)
	c.flight = check.Must(flight.New(t.Context(), js, flight.Config{Bucket: contracts.BucketImportSteps, ProbeInterval: -1}))(t)
	t.Cleanup(c.flight.Close)
	if !videos {
		return c
	}
	installed.YtDlp.Find(t)
	c.youTube = sourcetest.StartYouTube(t, nil)
	return c
}

// play has workers die one after the other, each while it works on new jobs and on those that are left, and a last one
// finish them all.
func (c *run) play(jobs int, at []string) {
	c.Helper()
	portion := jobs / (len(at) + 1)
	for _, point := range at {
		fresh := c.videos
		switch point {
		case inPage, inCaptions:
			c.killInYtDlp(point, portion)
		default:
			c.insert(portion, sourcetest.Video{})
			after := 1 + c.random.IntN(max(1, (c.videos-fresh)/2)) // each video comes to every point
			w := c.spawn(duty{After: after, Point: point})
			c.dies(w)
		}
		check.Until(c, patience, "the programs of the killed worker are gone", func() bool { return len(sourcetest.AtWork(c.dir)) == 0 })
		c.noteWasted()
	}
	last := c.spawn(duty{})
	c.insert(jobs-len(c.inserted), sourcetest.Video{})
	check.Until(c, patience, "all jobs are done", func() bool {
		if last.Ended() {
			c.Fatalf("the last worker has ended: %s", last.Said())
		}
		return c.queued() == 0
	})
	last.Stop()
	c.judge(len(at))
}

// share is how many jobs want the same video.
func share() int {
	if crash.Long() {
		return 5
	}
	return 2
}

// insert publishes jobs as the document has them, some of them twice. The first of the videos that they want behaves as is
// said, the others well.
func (c *run) insert(jobs int, how sourcetest.Video) {
	c.Helper()
	for n := range jobs {
		if n%share() == 0 {
			c.put(c.videos, how)
			how = sourcetest.Video{}
			c.videos++
		}
		id := jobName(len(c.inserted))
		job := contracts.ImportJob{
			JobID: id, OwnerID: fmt.Sprint("owner-", len(c.inserted)%3), SourceType: c.kind(c.videos - 1), URL: c.address(c.videos - 1),
			RequestedAt: time.Now().UTC(),
		}
		body := check.Must(contracts.Encode(job))(c)
		for range 1 + c.random.IntN(2) {
			check.OK(c, check.Err(c.js.Publish(c.Context(), "jobs.import.normal."+id, body)))
		}
		c.inserted = append(c.inserted, job)
	}
}

func jobName(job int) string { return fmt.Sprint("job-", job) }

// kind returns the type of a source: videos if there are any; in the long form, every other source is
// captions.
func (c *run) kind(video int) string {
	if c.youTube == nil || crash.Long() && video%2 == 1 {
		return contracts.SourceCaptions
	}
	return contracts.SourceYouTube
}

func (c *run) address(video int) string {
	if c.kind(video) == contracts.SourceCaptions {
		return c.site.URL + "/" + videoName(video)
	}
	return "https://youtu.be/" + videoName(video)
}

func videoName(video int) string { return fmt.Sprintf("crash%06d", video) }

// put makes a video, or changes how it behaves.
func (c *run) put(video int, how sourcetest.Video) {
	if c.youTube == nil {
		return
	}
	how.Title = fmt.Sprint("Pancakes ", video)
	if how.Tracks == nil {
		how.Tracks = []sourcetest.Track{{}}
	}
	how.Tracks[0].Language, how.Tracks[0].Body = "en", pancakes(videoName(video))
	c.youTube.Put(videoName(video), how)
}

// fetches is how often the captions of a video were asked for.
func (c *run) fetches(video int) int {
	if c.kind(video) == contracts.SourceCaptions {
		return c.site.count(videoName(video))
	}
	return c.youTube.Fetches(videoName(video))
}

// killInYtDlp kills a worker while yt-dlp waits for a video that does not come. Some jobs end before anything is fetched for
// them, because the Recipe Service did not answer when they began, as it never does for the first: then there are others.
func (c *run) killInYtDlp(point string, jobs int) {
	c.Helper()
	asked := c.youTube.Looks
	if point == inCaptions {
		asked = c.youTube.Fetches
	}
	var video int
	stall := func(jobs int) {
		for c.kind(c.videos) != contracts.SourceYouTube {
			c.videos++ // nobody wants this one
		}
		video = c.videos
		c.insert(jobs, sourcetest.Video{Stall: point == inPage, Tracks: []sourcetest.Track{{Stall: point == inCaptions}}})
	}
	first, fresh := len(c.inserted), c.videos
	c.recipes.refuse(jobName(first))
	stall(jobs)
	w := c.spawn(duty{})
	check.Until(c, patience, point, func() bool {
		if w.Ended() {
			c.Fatalf("the worker has ended before %s: %s", point, w.Said())
		}
		if c.over(first) {
			stall(1)
		}
		return asked(videoName(video)) > 0
	})
	if _, err := os.Stat("/proc/self/cwd"); err == nil && len(sourcetest.AtWork(c.dir)) == 0 {
		c.Error("no process is seen to be at work: the test would not see one that is left")
	}
	w.Kill()
	for video := fresh; video < c.videos; video++ {
		c.put(video, sourcetest.Video{})
	}
}

// over reports whether all jobs have ended that were inserted after the first n.
func (c *run) over(n int) bool {
	c.Helper()
	for _, job := range c.inserted[n:] {
		if record, known := c.job(job.JobID); !known || !record.Status.Final() {
			return false
		}
	}
	return true
}

// dies waits until a worker has killed itself. When its jobs end before they come to its point, it gets others.
func (c *run) dies(w *crash.Process) {
	c.Helper()
	check.Until(c, patience, "the worker has killed itself", func() bool {
		if w.Ended() {
			return true
		}
		if c.queued() == 0 {
			c.insert(1, sourcetest.Video{})
		}
		return false
	})
	w.Died()
}

// noteWasted records the videos that a killed worker has fetched in vain: no other process has the result.
func (c *run) noteWasted() {
	c.Helper()
	for video := range c.videos {
		if !c.shared(video) {
			c.wasted[video] = c.fetches(video)
		}
	}
}

// shared reports whether all jobs have the transcript of a video.
func (c *run) shared(video int) bool {
	c.Helper()
	id := check.Must(c.fetcher.Identify(c.Context(), source.Request{Type: c.kind(video), URL: c.address(video)}))(c)
	key := check.Must(contracts.ImportStepKey(id, "transcript-v1-"+source.Version))(c)
	slot := check.Must(c.flight.Get(c.Context(), key))(c)
	return slot.State == flight.Done
}

// queued is how many messages are in the queue.
func (c *run) queued() uint64 {
	c.Helper()
	stream := check.Must(c.js.Stream(c.Context(), contracts.StreamImportJobs))(c)
	return stream.CachedInfo().State.Msgs
}
