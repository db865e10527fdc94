package enricher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// instances are enrichers in processes of their own, so that they can be killed. Each prints its URL when it is ready.
var instances = crash.Role[instance]{Name: "instance", Run: serve}

// instance is one enricher.
type instance struct {
	Name, NATS, Provider string

	WoltRate float64 // of the provider wolt, which is asked in place of the test's when it is set
}

func TestMain(m *testing.M) { crash.Main(m, 4, instances) }

func serve(ctx context.Context, is instance) error {
	nc, err := nats.Connect(is.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(nats.DefaultReconnectWait/100))
	if err != nil {
		return err
	}
	defer nc.Close()
	level := slog.LevelError
	if os.Getenv("TEST_ENRICHER_DEBUG") != "" {
		level = slog.LevelDebug
	}
	cfg := enricher.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "127.0.0.1:0", MaxBytes: 1 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("instance", is.Name),
		},
		Enabled: true,
	}
	if is.WoltRate > 0 {
		cfg.WoltRate, cfg.WoltURL = is.WoltRate, is.Provider
	} else {
		cfg.Providers = []provider.Provider{remote{name: is.Name, url: is.Provider}}
	}
	e, err := enricher.Start(ctx, nc, cfg)
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

// question is a request to the provider.
type question struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
}

// farClient has no time-out of its own: the job's context ends a call.
var farClient = &http.Client{}

// TestCallsReadAfterTheKill: the far side reads none of an instance's calls before the instance is killed. They count as
// look-ups that the instance was in the middle of: each place is looked up once more.
func TestCallsReadAfterTheKill(t *testing.T) {
	t.Parallel()
	const n = 10
	ctx, moved := untilStalled(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newFarSide(t, moved)
	release := far.readLate()
	a := instances.Start(t, instance{Name: "a", NATS: srv.URL(), Provider: far.URL})
	c := &client{
		http: newHTTP(t), instances: []string{a.Line()}, retrying: make(chan struct{}, 1),
		req: contracts.EnrichRequest{RequestID: "r", Results: places(n)},
	}
	check.OK(t, check.Err(c.ask(ctx)))
	for range n {
		select {
		case <-far.held:
		case <-ctx.Done():
			t.Fatal("not all places are being looked up")
		}
	}
	before := far.counts()
	a.Kill()
	close(release)
	c.instances = []string{instances.Start(t, instance{Name: "b", NATS: srv.URL(), Provider: far.URL}).Line()}
	check.OK(t, c.run(ctx))
	if again := checkOnce(t, []*client{c}, lookUps{before: before, all: far.counts(), killed: "a"}); len(before) > 0 || len(again) != n {
		t.Errorf("%d places counted before the kill and %d were looked up again, want none and %d", len(before), len(again), n)
	}
}
