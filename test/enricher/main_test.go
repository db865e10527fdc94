package enricher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The environment of this executable when it is to be one instance of the enricher.
const (
	envInstance = "TEST_ENRICHER_INSTANCE" // its name
	envNATS     = "TEST_ENRICHER_NATS"     // where the server is
	envProvider = "TEST_ENRICHER_PROVIDER" // where the far side is
)

func TestMain(m *testing.M) {
	if name := os.Getenv(envInstance); name != "" {
		if err := instance(name); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(natstest.Parallel(m, 4))
}

// instance is an enricher in a process of its own, so that it can be killed. It prints its URL when it is ready.
func instance(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(os.Getenv(envNATS), nats.MaxReconnects(-1), nats.ReconnectWait(nats.DefaultReconnectWait/100))
	if err != nil {
		return err
	}
	defer nc.Close()
	level := slog.LevelError
	if os.Getenv("TEST_ENRICHER_DEBUG") != "" {
		level = slog.LevelDebug
	}
	e, err := enricher.Start(ctx, nc, enricher.Config{
		CreateAssets: true, Enabled: true, Listen: "127.0.0.1:0", MaxBytes: 1 << 30,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("instance", name),
		Providers: []provider.Provider{remote{name: name, url: os.Getenv(envProvider)}},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, e.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return e.Stop()
}

// linkBase is what links begin with. After it comes the name of the instance that found the venue.
const linkBase = "https://wolt.com/"

// remote is a provider that asks the test's far side.
type remote struct{ name, url string }

func (remote) Name() string { return "wolt" }

func (r remote) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	body, err := json.Marshal(question{Instance: r.name, Name: place.Name})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := farClient.Do(req)
	if err != nil {
		return nil, &provider.Error{Provider: "wolt", Kind: provider.KindUnavailable, Cause: err}
	}
	defer resp.Body.Close()
	venue := provider.Venue{Place: place, ID: "v-" + place.Name, URL: linkBase + r.name + "/" + place.Name}
	venue.Aliases = nil
	return []provider.Venue{venue}, nil
}

// question is what the far side is asked.
type question struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
}

// farClient has no time-out of its own: the job's context ends a call.
var farClient = &http.Client{}
