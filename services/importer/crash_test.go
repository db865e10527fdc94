package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// Points at which a process is killed from outside, while its yt-dlp waits for an answer.
const (
	inPage     = "yt-dlp asks for the page"
	inCaptions = "yt-dlp asks for the captions"
)

var points = []string{
	imports.PointRunning, imports.PointBegun, imports.PointFetching, imports.PointFetched, imports.PointShared, imports.PointTranscript,
	imports.PointSaved, imports.PointExtracting, imports.PointExtracted, imports.PointRecipe, imports.PointRecipeNoted,
	imports.PointCreated, imports.PointNoted, imports.PointReady, imports.PointEnded, imports.PointSettled,
}

// importers are the processes that import.
var importers = crash.Role[task]{Name: "importer", Run: importProcess}

// task is the task of an importer process.
type task struct {
	Log, Name string // of the effect log, "" for none, and of the process in it
	Recipes   string // the address of the Recipe Service, "" for recipes in the bucket
	Replicas  int    // of the streams
	TempDir   string
	URL       string // of NATS

	CAFile, Proxy string // to the videos, "" for none

	Patience time.Duration // with a Recipe Service that does not work, 0 for 20 seconds

	DieAt  string // the point at which it dies, "" for none
	After  int    // when it passes that point for this time
	Killer string // the source that kills it, "" for none
}

func importProcess(ctx context.Context, is task) error {
	nc, err := nats.Connect(is.URL, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg, err := is.config(nc)
	if err != nil {
		return err
	}
	i, err := Start(ctx, nc, cfg)
	for ; err != nil && is.Log != ""; i, err = Start(ctx, nc, cfg) { // the servers are away
		if ctx.Err() != nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return i.Stop()
}

func (is task) config(nc *nats.Conn) (Config, error) {
	from := source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: is.TempDir}
	if is.Proxy != "" {
		from.YouTube = &source.YouTube{CAFile: is.CAFile, Proxy: is.Proxy, SocketTimeout: time.Hour, Timeout: time.Hour}
	}
	fetcher, err := source.New(from)
	if err != nil {
		return Config{}, err
	}
	recipes, err := is.store(nc)
	if err != nil {
		return Config{}, err
	}
	ackWait := 500 * time.Millisecond
	if is.Killer != "" {
		ackWait = 3 * time.Second // a heartbeat that is late would use an attempt, which are counted
	}
	return Config{
		BaseConfig: service.BaseConfig{
			AckWait: ackWait, CreateAssets: true, Listen: "-", MaxBytes: 1 << 30, Replicas: is.Replicas,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Fetcher: &deadly{Sources: fetcher, killer: is.Killer}, Store: recipes,
		Settings: Settings{OutagePatience: cmp.Or(is.Patience, 20*time.Second)}, passed: testbed.DieAt(is.DieAt, is.After),
	}, nil
}

func (is task) store(nc *nats.Conn) (store.Store, error) {
	if is.Recipes != "" {
		return store.NewRecipeService(remote.Config{BaseURL: is.Recipes, Token: recipeservicetest.Token, Timeout: 2 * time.Second})
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	log, err := crash.OpenLog(is.Log, is.Name)
	if err != nil {
		return nil, err
	}
	bucket, err := store.New(js, slog.New(slog.DiscardHandler))
	return &logged{Bucket: bucket, log: log}, err
}

// logged is a store of recipes that writes the effect of each job, which is its recipe, into the effect log.
type logged struct {
	*store.Bucket

	log *crash.Log
}

// Status implements store.Store. A job begins with it.
func (l *logged) Status(ctx context.Context, jobID string) (*contracts.ImportStatus, error) {
	if err := l.log.Write(crash.Started, jobID); err != nil {
		return nil, err
	}
	return l.Bucket.Status(ctx, jobID)
}

// Create implements store.Store.
func (l *logged) Create(ctx context.Context, d store.Draft) (string, error) {
	id, err := l.Bucket.Create(ctx, d)
	if err == nil {
		err = l.log.Write(crash.Effect, d.JobID)
	}
	return id, err
}

// SetStatus implements store.Store. A job that is READY is recorded as such, so nobody creates its recipe from now on.
func (l *logged) SetStatus(_ context.Context, jobID string, status contracts.ImportStatus) error {
	if status.Status != contracts.ImportReady {
		return nil
	}
	return l.log.Write(crash.Recorded, jobID)
}

// deadly fetches sources, of which one kills its process.
type deadly struct {
	*source.Sources

	killer  string
	fetches atomic.Int64
}

func (d *deadly) Fetch(ctx context.Context, request source.Request, progress func(float64)) (*source.Material, error) {
	d.fetches.Add(1)
	defer d.fetches.Add(-1)
	if d.killer != "" && strings.HasSuffix(request.URL, d.killer) {
		_, _ = fmt.Fprintln(os.Stdout, "killed beside", d.fetches.Load()-1) // the test misses it
		testbed.Die()
	}
	return d.Sources.Fetch(ctx, request, progress)
}

// TestKilledWorkers kills processes at every point of the life of a job, and while yt-dlp runs, while the Recipe Service answers with
// errors, late, twice or not at all. Every job ends, and the importer and the Recipe Service agree on how. None has two recipes. No source
// is fetched twice, except by processes that were killed while they fetched it. No program is left running, and no temporary folder.
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
	const runs = 4 // at the same time, because each of them waits most of its time
	for n := range runs {
		t.Run(fmt.Sprint("caption files ", n+1), func(t *testing.T) {
			t.Parallel()
			var at []string
			for i := n; i < len(points); i += runs {
				at = append(at, points[i])
			}
			newRun(t, seed, false).play(2*len(at)+2, at)
		})
	}
	t.Run("videos", func(t *testing.T) {
		t.Parallel()
		c := newRun(t, seed, true)
		c.patience = time.Second // every job may fail here, and the two that have to do so soon
		c.play(4, []string{inPage, inCaptions})
	})
}

// A job that has killed two processes runs alone, and is a dead letter when it kills two more: no other job is lost with it.
func TestAJobThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	c := newRun(t, crash.Seed(t), false)
	c.insert(8, sourcetest.Video{}) // of four sources, in jobs that the Recipe Service may fail
	killer := contracts.ImportJob{JobID: "killer", OwnerID: "ada", SourceType: source.TypeCaptions, URL: c.site.URL + "/killer"}
	c.publish(killer)
	for death := range 4 {
		p := c.start(task{Killer: killer.URL})
		p.Died()
		check.That(t, death < 2 || strings.Contains(p.Output(), "killed beside 0\n"),
			"death %d: want it killed beside no other: %s", death, p.Output())
	}
	last := c.start(task{Killer: killer.URL})
	check.Until(t, crash.Patience, "all jobs are done", func() bool { return last.Ended() || c.queued() == 0 })
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

// place is where processes import: the servers, and a site with caption files.
type place struct {
	*testing.T

	dir  string // for temporary folders
	js   jetstream.JetStream
	site *httptest.Server
	url  string // of NATS

	mu      sync.Mutex
	fetched map[string]int // times, by the name of a caption file
}

func newPlace(t *testing.T, url string, replicas int) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir(), url: url, fetched: map[string]int{}}
	_, p.js = natstest.ConnectURL(t, url)
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: replicas})
		return check.Err(provision.Apply(ctx, p.js, assets, provision.Options{}))
	}))
	p.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		p.mu.Lock()
		p.fetched[name]++
		p.mu.Unlock()
		_, _ = w.Write([]byte(pancakes(name)))
	}))
	t.Cleanup(p.site.Close)
	return p
}

// publish queues a job as any publisher may.
func (p *place) publish(job contracts.ImportJob) {
	p.Helper()
	body := check.Must(contracts.Encode(job))(p)
	check.OK(p, natstest.UntilAnswered(p, func(ctx context.Context) error {
		return check.Err(p.js.Publish(ctx, "jobs.import.normal."+job.JobID, body))
	}))
}

// queued returns the number of messages in the queue.
func (p *place) queued() (n uint64) {
	p.Helper()
	check.OK(p, natstest.UntilAnswered(p, func(ctx context.Context) error {
		stream, err := p.js.Stream(ctx, contracts.StreamImportJobs)
		if err == nil {
			n = stream.CachedInfo().State.Msgs
		}
		return err
	}))
	return n
}

// job returns the state of a job.
func (p *place) job(id string) (job Job, known bool) {
	p.Helper()
	err := natstest.UntilAnswered(p, func(ctx context.Context) error {
		bucket, err := p.js.KeyValue(ctx, contracts.BucketImportJobs)
		if err != nil {
			return err
		}
		entry, err := bucket.Get(ctx, id)
		if err != nil {
			return err
		}
		return json.Unmarshal(entry.Value(), &job)
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Job{}, false
	}
	check.OK(p, err)
	return job, true
}

// run is some imports whose processes are killed.
type run struct {
	*place

	fetcher *source.Sources
	flight  *flight.Flight
	random  *rand.Rand
	recipes *recipeservicetest.Service
	shop    string // where the recipes are

	patience time.Duration       // see task
	youTube  *sourcetest.YouTube // nil when there are only caption files

	wasted   map[int]int // how often the captions of a video may have been fetched for nothing
	inserted []contracts.ImportJob
	videos   int
}

func newRun(t *testing.T, seed uint64, videos bool) *run {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	c := &run{
		place: newPlace(t, srv.URL(), 1), wasted: map[int]int{}, random: rand.New(rand.NewPCG(seed, 0)), recipes: recipeservicetest.New(seed),
	}
	shop := httptest.NewServer(c.recipes)
	t.Cleanup(shop.Close)
	c.shop = shop.URL
	c.fetcher = check.Must(source.New(source.Config{TempDir: t.TempDir()}))(t)
	c.flight = check.Must(flight.New(t.Context(), c.js, flight.Config{Bucket: contracts.BucketImportSteps, ProbeInterval: -1}))(t)
	t.Cleanup(c.flight.Close)
	if videos {
		testbed.YtDlp.Find(t)
		c.youTube = sourcetest.StartYouTube(t, nil)
	}
	return c
}

// play has one process after the other die, each while it processes new jobs and those that are left, and a last one finish them all.
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
			c.dies(c.start(task{After: after, DieAt: point}))
		}
		check.Until(c, crash.Patience, "the programs of the process are gone", func() bool { return len(sourcetest.AtWork(c.dir)) == 0 })
		for video := range c.videos {
			if !c.shared(video) { // a killed process has fetched it in vain: no other has the result
				c.wasted[video] = c.fetches(video)
			}
		}
	}
	last := c.start(task{})
	c.insert(jobs-len(c.inserted), sourcetest.Video{})
	check.Until(c, crash.Patience, "all jobs are done", func() bool {
		check.Require(c, !last.Ended(), "the last process has ended: %s", last.Said())
		return c.queued() == 0
	})
	last.Stop()
	c.judge(len(at))
}

// insert publishes jobs, some of them twice. The first of the videos that they want behaves as given, the others well.
func (c *run) insert(jobs int, first sourcetest.Video) {
	c.Helper()
	share := 2 // of the jobs that want the same video
	if crash.Long() {
		share = 5
	}
	for n := range jobs {
		if n%share == 0 {
			c.put(c.videos, first)
			first = sourcetest.Video{}
			c.videos++
		}
		job := contracts.ImportJob{
			JobID: jobName(len(c.inserted)), OwnerID: fmt.Sprint("owner-", len(c.inserted)%3), SourceType: c.kind(c.videos - 1),
			URL: c.address(c.videos - 1), RequestedAt: time.Now().UTC(),
		}
		for range 1 + c.random.IntN(2) {
			c.publish(job)
		}
		c.inserted = append(c.inserted, job)
	}
}

func jobName(job int) string { return fmt.Sprint("job-", job) }

func videoName(video int) string { return fmt.Sprintf("crash%06d", video) }

// kind returns the type of a source: videos if there are any; in the long form, every other source is captions.
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

// fetches returns how often the captions of a video were requested.
func (c *run) fetches(video int) int {
	if c.kind(video) == source.TypeYouTube {
		return c.youTube.Fetches(videoName(video))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fetched[videoName(video)]
}

// killInYtDlp kills a process while yt-dlp waits for a video that does not come. Some jobs end before anything is fetched for
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
	p := c.start(task{})
	check.Until(c, crash.Patience, point, func() bool {
		check.Require(c, !p.Ended(), "the process has ended before %s: %s", point, p.Said())
		if !slices.ContainsFunc(c.inserted[first:], func(job contracts.ImportJob) bool {
			record, _ := c.job(job.JobID)
			return !record.Status.Final()
		}) {
			stall(1)
		}
		return asked(videoName(video)) > 0
	})
	if _, err := os.Stat("/proc/self/cwd"); err == nil && len(sourcetest.AtWork(c.dir)) == 0 {
		c.Error("no program is seen to run: the test would not see one that is left")
	}
	p.Kill()
	for video := fresh; video < c.videos; video++ {
		c.put(video, sourcetest.Video{})
	}
}

// dies waits until a process has killed itself. When its jobs end before they come to its point, it gets others.
func (c *run) dies(p *crash.Process) {
	c.Helper()
	check.Until(c, crash.Patience, "the process has killed itself", func() bool {
		if !p.Ended() && c.queued() == 0 {
			c.insert(1, sourcetest.Video{})
		}
		return p.Ended()
	})
	p.Died()
}

// shared reports whether all jobs have the transcript of a video.
func (c *run) shared(video int) bool {
	c.Helper()
	id := check.Must(c.fetcher.Identify(c.Context(), source.Request{Type: c.kind(video), URL: c.address(video)}))(c)
	key := check.Must(subject.Join("", subject.ID("scope", id), subject.Name("step", "transcript-v1-"+source.Version)))(c)
	slot := check.Must(c.flight.Get(c.Context(), key))(c)
	return slot.State == flight.Done
}

func (c *run) start(is task) *crash.Process {
	c.Helper()
	is.Patience, is.Recipes, is.TempDir, is.URL = c.patience, c.shop, c.dir, c.url
	if c.youTube != nil {
		is.CAFile, is.Proxy = c.youTube.CAFile, c.youTube.Proxy
	}
	return importers.Start(c, is)
}

// judge checks the outcome.
func (c *run) judge(kills int) {
	c.Helper()
	failed := 0
	for _, job := range c.inserted {
		if !c.endedWell(job) {
			failed++
		}
	}
	seen := c.recipes.Seen()
	most := 3 + seen.Refused // the others wait until the service answers
	check.That(c, failed <= most, "%d of %d jobs failed: want %d at most", failed, len(c.inserted), most)
	fetches, wasted := 0, 0
	for video := range c.videos {
		n := c.fetches(video)
		fetches, wasted = fetches+n, wasted+c.wasted[video]
		check.That(c, n-c.wasted[video] <= 1, "video %d was fetched %d times, %d of them by processes that were killed",
			video, n, c.wasted[video])
		check.That(c, n <= 0 || failed != 0 || c.shared(video),
			"the transcript of video %d is not found: the test looks in the wrong place", video)
	}
	entries, err := os.ReadDir(c.dir)
	check.That(c, err == nil && len(entries) == 0, "temporary folders %v, error %v: want none", entries, err)
	left := sourcetest.AtWork(c.dir)
	check.That(c, len(left) == 0, "programs are left running: %v", left)
	check.That(c, len(seen.Foreign)+len(seen.Twice) == 0,
		"calls that nobody answers %v, recipes of other sources or owners %v", seen.Foreign, seen.Twice)
	c.Logf("%d jobs of %d videos, %d kills: %d failed; %d fetches, %d of them for nothing; %d recipes; %d calls of the Recipe Service",
		len(c.inserted), c.videos, kills, failed, fetches, wasted, seen.Recipes, seen.Calls)
}

// endedWell reports whether a job is READY, and fails the test unless the importer and the Recipe Service agree on how it ended.
func (c *run) endedWell(req contracts.ImportJob) bool {
	c.Helper()
	job, known := c.job(req.JobID)
	check.Require(c, known, "%s has no record", req.JobID)
	reported, recipe := c.recipes.Ended(req.JobID)
	switch {
	case reported.Status != job.Status:
		c.Errorf("%s is %s, and the Recipe Service has it as %s", job.JobID, job.Status, reported.Status)
	case job.Status == contracts.ImportReady:
		check.That(c, job.RecipeID != "" && job.RecipeID == recipe.ID && reported.RecipeID == recipe.ID,
			"%s is READY with recipe %q, reported %q: the Recipe Service has %q", job.JobID, job.RecipeID, reported.RecipeID, recipe.ID)
		return true
	case job.Status != contracts.ImportFailed, job.Code != failure.StoreFailed && job.Code != failure.Crashed:
		c.Errorf("%s: %+v", job.JobID, job)
	}
	return false
}

// TestProof is the part "imports" of the proof: three processes import caption files through all faults. Each job that was accepted has
// one recipe. One whose processes died so often that it failed is retried, as an operator would.
func TestProof(t *testing.T) {
	const long = 8 * time.Second // of a process that is frozen or cut off, so that others take its jobs
	crash.Proof(t, "imports", func(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
		p, log := newPlace(t, on.URL, on.Replicas), crash.NewLog(t)
		group := crash.NewGroup(t, log, on.URL, 3, func(name, servers string) *crash.Process {
			return importers.Start(t, task{Log: log.Path(), Name: name, Replicas: on.Replicas, TempDir: p.dir, URL: servers})
		})
		faults := slices.Concat(group.Faults(long), on.Faults(log, long, contracts.StreamImportJobs, "KV_"+contracts.BucketImportJobs))
		ctx, cancel := context.WithDeadline(t.Context(), until)
		defer cancel()
		injected := make(chan error, 1)
		go func() { injected <- crash.Inject(ctx, r, time.Second, faults...) }()
		jobs := p.insertUntil(ctx)
		check.ErrorIs(t, <-injected, nil)
		p.finish(jobs)
		group.Stop()
		return check.Must(log.Judge(slices.Values(jobs), nil))(t)
	})
}

// insertUntil publishes jobs until ctx ends, two for each caption file, as fast as they are processed.
func (p *place) insertUntil(ctx context.Context) (jobs []string) {
	p.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		p.publish(contracts.ImportJob{
			JobID: jobName(n), OwnerID: fmt.Sprint("owner-", n%3), SourceType: source.TypeCaptions, URL: fmt.Sprint(p.site.URL, "/", n/2),
		})
		if jobs = append(jobs, jobName(n)); len(jobs)%50 == 0 {
			check.Until(p, crash.Patience, "there is room in the queue", func() bool { return ctx.Err() != nil || p.queued() < 50 })
		}
	}
	return jobs
}

// finish waits until all jobs are READY, and retries those that failed.
func (p *place) finish(jobs []string) {
	p.Helper()
	for _, id := range jobs {
		check.Until(p, crash.Patience, id+" is READY", func() bool {
			job, _ := p.job(id)
			if job.Status == contracts.ImportFailed && job.Retryable {
				_, _ = p.js.Conn().Request("importer.v1.retry", fmt.Appendf(nil, `{"job_id":%q}`, id), time.Second) // again if it is lost
			}
			return job.Status == contracts.ImportReady
		})
	}
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
