package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/recipeservicetest"
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
	killer := contracts.ImportJob{JobID: "killer", OwnerID: "ada", SourceType: source.TypeCaptions, URL: c.site.URL + "/killer"}
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
	check.That(t, job.Status == contracts.ImportFailed && job.Code == failure.Crashed && job.Attempt == 5, "%+v", job)
	for _, job := range c.inserted {
		got, _ := c.job(job.JobID)
		check.That(t, got.Code != failure.Crashed && got.Status.Final(), "%+v", got)
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
	recipes *recipeservicetest.Service
	shop    string // where the recipes are
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
		recipes: recipeservicetest.New(seed), site: newCaptionSite(t), url: srv.URL(),
	}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	shop := httptest.NewServer(c.recipes)
	t.Cleanup(shop.Close)
	c.shop = shop.URL
	var err error
	c.fetcher, err = source.New(source.Config{TempDir: t.TempDir()})
	check.OK(t, err)
	c.flight = check.Must(flight.New(t.Context(), js, flight.Config{Bucket: contracts.BucketImportSteps, ProbeInterval: -1}))(t)
	t.Cleanup(c.flight.Close)
	if !videos {
		return c
	}
	testbed.YtDlp.Find(t)
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
		return source.TypeCaptions
	}
	return source.TypeYouTube
}

func (c *run) address(video int) string {
	if c.kind(video) == source.TypeCaptions {
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
	if c.kind(video) == source.TypeCaptions {
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
		for c.kind(c.videos) != source.TypeYouTube {
			c.videos++ // nobody wants this one
		}
		video = c.videos
		c.insert(jobs, sourcetest.Video{Stall: point == inPage, Tracks: []sourcetest.Track{{Stall: point == inCaptions}}})
	}
	first, fresh := len(c.inserted), c.videos
	c.recipes.Refuse(jobName(first))
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
	key := check.Must(subject.Join("", subject.ID("scope", id), subject.Name("step", "transcript-v1-"+source.Version)))(c)
	slot := check.Must(c.flight.Get(c.Context(), key))(c)
	return slot.State == flight.Done
}

// queued is how many messages are in the queue.
func (c *run) queued() uint64 {
	c.Helper()
	stream := check.Must(c.js.Stream(c.Context(), contracts.StreamImportJobs))(c)
	return stream.CachedInfo().State.Msgs
}

func TestMain(m *testing.M) { crash.Main(m, 4, workers, bounded) }

// workers are the processes that are killed.
var workers = crash.Role[duty]{Name: "worker", Run: func(ctx context.Context, d duty) error { return d.work(ctx) }}

// duty is the work of a worker process, and the point at which it dies.
type duty struct {
	After   int    `json:"after"` // it dies at the how manieth time
	CAFile  string `json:"ca_file"`
	Killer  string `json:"killer"` // a source that kills it
	Point   string `json:"point"`  // at which point; none when it is not to die by itself
	Proxy   string `json:"proxy"`  // to the videos, when there are any
	Recipes string `json:"recipes"`
	TempDir string `json:"temp_dir"`
	URL     string `json:"url"`
}

// work is the life of a worker process: it works until it kills itself, is killed, or its standard input ends.
func (d duty) work(ctx context.Context) error {
	nc, err := nats.Connect(d.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg, err := d.config()
	if err != nil {
		return err
	}
	i, err := Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return i.Stop()
}

func (d duty) config() (Config, error) {
	from := source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: d.TempDir}
	if d.Proxy != "" {
		from.YouTube = &source.YouTube{CAFile: d.CAFile, Proxy: d.Proxy, SocketTimeout: time.Hour, Timeout: time.Hour}
	}
	fetcher, err := source.New(from)
	if err != nil {
		return Config{}, err
	}
	recipes, err := store.NewRecipeService(remote.Config{BaseURL: d.Recipes, Token: recipeservicetest.Token, Timeout: 2 * time.Second})
	if err != nil {
		return Config{}, err
	}
	ackWait := 500 * time.Millisecond
	if d.Killer != "" {
		ackWait = 3 * time.Second // a heartbeat that is late would use an attempt, which are counted
	}
	return Config{
		BaseConfig: service.BaseConfig{
			AckWait: ackWait, CreateAssets: true, Listen: "-", MaxBytes: 1 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Fetcher: &deadly{Sources: fetcher, duty: d}, Store: recipes, Settings: Settings{OutagePatience: 20 * time.Second},
		passed: testbed.DieAt(d.Point, d.After),
	}, nil
}

// deadly fetches sources, of which one kills its process.
type deadly struct {
	*source.Sources

	duty    duty
	fetches atomic.Int64
}

func (d *deadly) Fetch(ctx context.Context, request source.Request, progress func(float64)) (*source.Material, error) {
	d.fetches.Add(1)
	defer d.fetches.Add(-1)
	if d.duty.Killer == "" || !strings.HasSuffix(request.URL, d.duty.Killer) {
		return d.Sources.Fetch(ctx, request, progress)
	}
	_, _ = fmt.Fprintln(os.Stdout, "killed beside", d.fetches.Load()-1) // the test misses it
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// judge checks the outcome.
func (c *run) judge(kills int) {
	c.Helper()
	failed := 0
	for _, job := range c.inserted {
		if !c.wellEnded(job) {
			failed++
		}
	}
	asked := c.recipes.Seen()
	most := 3 + asked.Refused // the others are put off until the service answers
	check.That(c, failed <= most, "%d of %d jobs failed: want %d at most", failed, len(c.inserted), most)
	fetches, again := 0, 0
	for video := range c.videos {
		n := c.fetches(video)
		fetches, again = fetches+n, again+c.wasted[video]
		if n-c.wasted[video] > 1 {
			c.Errorf("video %d was fetched %d times, %d of them by workers that were killed in the middle of it", video, n, c.wasted[video])
		}
		check.That(c, n <= 0 || failed != 0 || c.shared(video),
			"the transcript of video %d is not found: the test looks in the wrong place", video)
	}
	entries, err := os.ReadDir(c.dir)
	check.That(c, err == nil && len(entries) == 0, "temporary folders %v, error %v: want none", entries, err)
	left := sourcetest.AtWork(c.dir)
	check.That(c, len(left) == 0, "processes are left at work: %v", left)
	check.That(c, len(asked.Foreign)+len(asked.Twice) == 0,
		"calls that nobody answers %v, recipes of other sources or owners %v", asked.Foreign, asked.Twice)
	c.Logf("%d jobs of %d videos, %d kills: %d failed; %d fetches, %d of them for nothing; %d recipes; %d calls of the Recipe Service",
		len(c.inserted), c.videos, kills, failed, fetches, again, asked.Recipes, asked.Calls)
}

// job is where a job stands.
func (c *run) job(id string) (job Job, known bool) {
	c.Helper()
	bucket := check.Must(c.js.KeyValue(c.Context(), contracts.BucketImportJobs))(c)
	entry, err := bucket.Get(c.Context(), id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Job{}, false
	}
	check.OK(c, err)
	check.OK(c, json.Unmarshal(entry.Value(), &job))
	return job, true
}

// wellEnded reports whether a job is READY, and complains unless both sides agree on how it ended.
func (c *run) wellEnded(req contracts.ImportJob) bool {
	c.Helper()
	job, known := c.job(req.JobID)
	check.Require(c, known, "%s has no record", req.JobID)
	told, recipe := c.recipes.Ended(req.JobID)
	switch {
	case told.Status != job.Status:
		c.Errorf("%s is %s, and the Recipe Service was told that it is %s", job.JobID, job.Status, told.Status)
	case job.Status == contracts.ImportReady:
		check.That(c, job.RecipeID != "" && job.RecipeID == recipe.ID && told.RecipeID == recipe.ID,
			"%s is READY with recipe %q, told %q: the Recipe Service has %q", job.JobID, job.RecipeID, told.RecipeID, recipe.ID)
		return true
	case job.Status != contracts.ImportFailed, job.Code != failure.StoreFailed && job.Code != failure.Crashed:
		c.Errorf("%s: %+v", job.JobID, job)
	}
	return false
}

func (c *run) spawn(d duty) *crash.Process {
	c.Helper()
	d.Recipes, d.TempDir, d.URL = c.shop, c.dir, c.url
	if c.youTube != nil {
		d.CAFile, d.Proxy = c.youTube.CAFile, c.youTube.Proxy
	}
	return workers.Start(c, d)
}

// captionSite is a site with caption files.
type captionSite struct {
	*httptest.Server

	mu     sync.Mutex
	counts map[string]int
}

func newCaptionSite(t *testing.T) *captionSite {
	t.Helper()
	f := &captionSite{counts: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		f.mu.Lock()
		f.counts[name]++
		f.mu.Unlock()
		_, _ = w.Write([]byte(pancakes(name)))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *captionSite) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// pancakes is a caption file that holds a recipe, and a word by which it differs from others.
func pancakes(word string) string {
	return `WEBVTT

00:01.000 --> 00:05.000
Today we make pancakes ` + word + `.

00:05.000 --> 00:11.000
Mix 2 cups of flour with 1 teaspoon of salt.

00:11.000 --> 00:18.000
Add 3 eggs and whisk until smooth.

00:18.000 --> 00:25.000
Pour the batter into a hot pan and fry for 2 minutes.
`
}

func TestEnvironmentIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"IMPORTER_CONCURRENCY": "many", "IMPORTER_YOUTUBE": "perhaps", "IMPORTER_TYPO": "1", "IMPORTER_ALLOW_NETWORKS": "10.0.0.0", "HOME": "/root",
	}, io.Discard, &cfg)
	check.ErrorContains(t, err, "IMPORTER_CONCURRENCY", "IMPORTER_YOUTUBE", "IMPORTER_TYPO", "IMPORTER_ALLOW_NETWORKS")
	cfg = Config{}
	err = service.Read(name, map[string]string{
		"IMPORTER_CONCURRENCY": "3", "IMPORTER_ALLOW_NETWORKS": "10.0.0.0/8,fd00::/8", "NATS_URL": "nats://n1",
	}, io.Discard, &cfg)
	check.That(t, err == nil && cfg.Concurrency == 3 && len(cfg.AllowNetworks) == 2 && cfg.NATSURL == "nats://n1", "%+v, %v", cfg, err)
}

func TestConfigurationIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	err := Config{
		BaseConfig:       service.BaseConfig{AckWait: 1, Concurrency: -1, MaxBytes: -1, Replicas: 9},
		RecipeServiceURL: "http://far.test", RecipeServiceToken: secret + "\n", OrchestratorToken: secret, Settings: Settings{StateTTL: 1},
		OpenAIKey: secret, TempDir: "nowhere/below",
	}.withDefaults().validate()
	for _, want := range []string{
		"IMPORTER_ACK_WAIT", "IMPORTER_CONCURRENCY", "IMPORTER_MAX_BYTES", "IMPORTER_REPLICAS", "plain http", "IMPORTER_ORCHESTRATOR_TOKEN", "StateTTL", "IMPORTER_OPENAI_KEY",
		"IMPORTER_TEMP_DIR nowhere/below: open nowhere",
	} {
		check.ErrorContains(t, err, want)
	}
	check.That(t, !strings.Contains(err.Error(), secret), "the error holds a token")
	check.ErrorIs(t, (Config{}).withDefaults().validate(), nil)
}

// The result of one extractor is not taken for another's: the version names all that the recipes depend on.
func TestExtractorsAreToldApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, cfg := range []Config{
		{},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "a"},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "b"},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "b", OpenAIVision: true},
		{OpenAIURL: "https://other.test/v1", OpenAIModel: "b"},
		{OrchestratorURL: "https://ai.test"},
		{OrchestratorURL: "https://other.test"},
	} {
		made := check.Must(cfg.extractor())(t)
		is := made.Name + " " + made.Version
		check.That(t, !seen[is], "%s is the version of two", is)
		seen[is] = true
	}
}

// endless is a program tesseract that reads photos, with its own program, for longer than any test lasts.
const endless = `#!/bin/sh
case "$*" in *--list-langs*) echo List; echo eng; exit 0;; esac
sleep 10000 &
echo $! >> AT_WORK
wait
`

// While one large photo takes all the memory for large sources, and more of them wait than there are slots, another user's text is
// imported. When the photo's job is cancelled, its processes end, and another photo has its memory and its slot.
func TestLargeSourcesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	programs, site := t.TempDir(), worstSite(t)
	atWork := filepath.Join(programs, "at-work")
	testbed.WriteProgram(t, filepath.Join(programs, "tesseract"), strings.ReplaceAll(endless, "AT_WORK", atWork))
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	process := bounded.Start(t, boundedDuty{Path: programs + ":" + os.Getenv("PATH"), TempDir: t.TempDir(), URL: srv.URL()})
	api := process.Await(`http=(http://\S+)`)[1] + "/v1/imports"
	submit := func(owner, name string) string {
		return ask(t, http.MethodPost, api, fmt.Sprintf(`{"owner_id":%q,"url":%q}`, owner, site.URL+name)).JobID
	}
	awaitWork := func(n int) (pid int) {
		check.Until(t, time.Minute, fmt.Sprintf("photo %d is read", n), func() bool {
			data, _ := os.ReadFile(atWork) // is made by the first
			pids := strings.Fields(string(data))
			if len(pids) == n {
				pid = check.Must(strconv.Atoi(pids[n-1]))(t)
			}
			return pid > 0
		})
		return pid
	}
	first := submit("ada", "/first/cmyk.jpg")
	pid := awaitWork(1)
	for n := range 10 {
		submit("ada", fmt.Sprintf("/%d/cmyk.jpg", n))
	}
	text := submit("bob", "/bob/text.vtt")
	check.Until(t, time.Minute, "the text is imported",
		func() bool { return ask(t, http.MethodGet, api+"/"+text, "").Status == contracts.ImportReady })
	ask(t, http.MethodPost, api+"/"+first+"/cancel", "")
	check.Until(t, time.Minute, "the program has ended", func() bool { return unix.Kill(pid, 0) != nil })
	awaitWork(2)
	process.Stop()
}

// deaf is a source that goes on until it is told, whatever its context.
type deaf struct{ end chan struct{} }

func (deaf) Identify(_ context.Context, r source.Request) (string, error) { return "web:" + r.URL, nil }

func (d deaf) Fetch(context.Context, source.Request, func(float64)) (*source.Material, error) {
	<-d.end
	return nil, context.Canceled
}

// A job that keeps its slot after its time is over is named by the check of readiness, until it has ended.
func TestAJobThatGoesOnIsSeen(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		fetcher := deaf{make(chan struct{})}
		i := check.Must(Start(t.Context(), nc, Config{
			BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), Concurrency: 2}, Fetcher: fetcher,
		}))(t)
		end := sync.OnceFunc(func() { close(fetcher.end) })
		defer end()
		ready := func() string { return fmt.Sprint(i.running.Ready()["worker"]) }
		for _, id := range []string{"a", "b"} {
			_, _, err := i.Submit(t.Context(), Submission{ImportJob: contracts.ImportJob{JobID: id, OwnerID: "ada", URL: "http://a.test/" + id}})
			check.OK(t, err)
		}
		check.Until(t, time.Hour, "both are named", func() bool { return strings.Contains(ready(), "2 of 2 slots") })
		end()
		check.Until(t, time.Hour, "it is ready again", func() bool { return ready() == "<nil>" })
		check.OK(t, i.Stop())
	})
}
