package importer

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

func TestMain(m *testing.M) { crash.Main(m, 4, workers, bounded) }

// workers are the processes that are killed.
var workers = crash.Role[duty]{Name: "worker", Run: func(ctx context.Context, d duty) error { return d.work(ctx) }}

// duty says what a worker process does, and where it dies.
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

// token is what the Recipe Service of the tests wants to see.
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
	recipes, err := recipeservice.New(recipeservice.Config{BaseURL: d.Recipes, Token: token, Timeout: 2 * time.Second})
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
		Fetcher: &deadly{Sources: fetcher, duty: d}, Store: recipes, OutagePatience: 20 * time.Second,
		passed: child.DieAt(d.Point, d.After),
	}, nil
}

// deadly fetches sources, of which one kills its process.
type deadly struct {
	*source.Sources

	duty    duty
	fetches atomic.Int64
}

func (d *deadly) Fetch(ctx context.Context, request source.Request, progress func(string, float64)) (*source.Material, error) {
	d.fetches.Add(1)
	defer d.fetches.Add(-1)
	if d.duty.Killer == "" || !strings.HasSuffix(request.URL, d.duty.Killer) {
		return d.Sources.Fetch(ctx, request, progress)
	}
	_, _ = fmt.Fprintln(os.Stdout, "killed beside", d.fetches.Load()-1) //nolint:errcheck // the test misses it
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
