package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/internal/remote"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

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

// token is the token that the Recipe Service of the tests requires.
const token = "crash-test-token"

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
	recipes, err := recipeservice.New(remote.Config{BaseURL: d.Recipes, Token: token, Timeout: 2 * time.Second})
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
		passed: child.DieAt(d.Point, d.After),
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
	c.recipes.mu.Lock()
	refused := len(c.recipes.refused)
	c.recipes.mu.Unlock()
	most := 3 + refused // the others are put off until the service answers
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
	c.recipes.mu.Lock()
	defer c.recipes.mu.Unlock()
	check.That(c, len(c.recipes.foreign)+len(c.recipes.twice) <= 0,
		"calls that nobody answers %v, recipes of other sources or owners %v", c.recipes.foreign, c.recipes.twice)
	c.Logf("%d jobs of %d videos, %d kills: %d failed; %d fetches, %d of them for nothing; %d recipes; %d calls of the Recipe Service",
		len(c.inserted), c.videos, kills, failed, fetches, again, len(c.recipes.recipes), c.recipes.calls)
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
	told, recipe := c.recipes.ended(req.JobID)
	switch {
	case told.Status != job.Status:
		c.Errorf("%s is %s, and the Recipe Service was told that it is %s", job.JobID, job.Status, told.Status)
	case job.Status == contracts.ImportReady:
		check.That(c, job.RecipeID != "" && job.RecipeID == recipe.id && told.RecipeID == recipe.id,
			"%s is READY with recipe %q, told %q: the Recipe Service has %q", job.JobID, job.RecipeID, told.RecipeID, recipe.id)
		return true
	case job.Status != contracts.ImportFailed, job.Code != contracts.CodeStoreFailed && job.Code != contracts.CodeCrashed:
		c.Errorf("%s: %+v", job.JobID, job)
	}
	return false
}

func (c *run) spawn(d duty) *crash.Process {
	c.Helper()
	d.Recipes, d.TempDir, d.URL = c.recipes.URL, c.dir, c.url
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
	check.Contains(t, err, "IMPORTER_CONCURRENCY", "IMPORTER_YOUTUBE", "IMPORTER_TYPO", "IMPORTER_ALLOW_NETWORKS")
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
		check.Contains(t, err, want)
	}
	check.That(t, !strings.Contains(err.Error(), secret), "the error holds a token")
	check.Is(t, (Config{}).withDefaults().validate(), nil)
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
