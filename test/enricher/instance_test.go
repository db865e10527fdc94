package enricher_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// instances are enrichers in separate processes. Each prints its URL when it is ready.
var instances = crash.Role[instance]{Name: "instance", Run: serve}

func TestMain(m *testing.M) { crash.Main(m, 4, instances) }

// instance is one enricher.
type instance struct {
	Hold     string // the place whose lookup does not end before the first fault
	Log      string // the path of the effect log
	Name     string
	Replicas int
	Servers  string
	Takes    time.Duration // each lookup
}

func serve(ctx context.Context, is instance) error {
	log, err := crash.OpenLog(is.Log, is.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	nc, err := nats.Connect(is.Servers, nats.MaxReconnects(-1), nats.ReconnectWait(nats.DefaultReconnectWait/100),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg := enricher.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "127.0.0.1:0", MaxBytes: 1 << 30, Replicas: is.Replicas,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})).With("instance", is.Name),
		},
		Enabled: true, Providers: []provider.Provider{venues{is, log}},
	}
	e, err := enricher.Start(ctx, nc, cfg)
	for err != nil && retry.Sleep(ctx, time.Second) { // a leader may be about to change
		e, err = enricher.Start(ctx, nc, cfg)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, e.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return e.Stop()
}

// linkBase is the beginning of links. After it comes the name of the instance that found the venue.
const linkBase = "https://wolt.com/"

// venues is a provider that has every place, and logs its lookups.
type venues struct {
	instance

	log *crash.Log
}

func (venues) Name() string { return contracts.ProviderWolt }

func (v venues) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if err := v.log.Write(crash.Started, place.Name); err != nil {
		return nil, err
	}
	takes := v.Takes
	if place.Name == v.Hold {
		takes = crash.Patience
		err := v.log.Entries(func(e crash.Entry) {
			if e.Kind == crash.Injected {
				takes = v.Takes
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if !retry.Sleep(ctx, takes) {
		return nil, &provider.Error{Cause: context.Cause(ctx), Kind: provider.KindCanceled, Provider: contracts.ProviderWolt}
	}
	if err := v.log.Write(crash.Effect, place.Name); err != nil {
		return nil, err
	}
	return []provider.Venue{{Place: place, ID: "v-" + place.Name, URL: linkBase + v.instance.Name + "/" + place.Name}}, nil
}

// finder returns the instance that found a place, or "".
func finder(state contracts.ProviderState) string {
	if state.Status != contracts.StatusFound || state.URL == nil {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(*state.URL, linkBase), "/")
	return name
}
