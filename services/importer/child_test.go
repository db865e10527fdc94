package importer

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

func TestMain(m *testing.M) { crash.Main(m, 4, workers) }

// workers are the processes that are killed.
var workers = crash.Role[duty]{Name: "worker", Run: func(ctx context.Context, d duty) error { return d.work(ctx) }}

// duty says what a worker process does, and where it dies.
type duty struct {
	After   int    `json:"after"` // it dies at the how manieth time
	CAFile  string `json:"ca_file"`
	Point   string `json:"point"` // at which point; none when it is not to die by itself
	Proxy   string `json:"proxy"` // to the videos, when there are any
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
	return Config{
		BaseConfig: service.BaseConfig{
			AckWait: 500 * time.Millisecond, CreateAssets: true, Listen: "-", MaxBytes: 1 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Fetcher: fetcher, Store: recipes,
		passed: child.DieAt(d.Point, d.After),
	}, nil
}
