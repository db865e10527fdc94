package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

// childEnv holds the duty of a worker process that the test starts to kill.
const childEnv = "IMPORTER_TEST_CHILD"

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

// child is the life of a worker process: it works until it kills itself, is killed, or its standard input ends.
func child(text string) int {
	var d duty
	err := json.Unmarshal([]byte(text), &d)
	if err == nil {
		err = d.work()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (d duty) work() error {
	nc, err := nats.Connect(d.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg, err := d.config()
	if err != nil {
		return err
	}
	i, err := Start(context.Background(), nc, cfg)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
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
	var passed atomic.Int64
	return Config{
		AckWait: 500 * time.Millisecond, CreateAssets: true, Fetcher: fetcher, Listen: "-", MaxBytes: 1 << 30, Store: recipes,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		passed: func(point string) {
			if point == d.Point && passed.Add(1) >= int64(d.After) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	}, nil
}
