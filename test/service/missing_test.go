package service_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
)

// declared makes the streams and consumers of the importer.
func declared(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	options := contracts.AssetOptions{MaxBytes: 1, Replicas: replicas, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(options), contracts.ApplyOptions{})))
}

// imports describes a service that works the stream of imports.
func imports(cfg service.BaseConfig) service.Spec {
	cfg.Logger, cfg.MaxBytes = slog.New(slog.DiscardHandler), 1
	return service.Spec{
		Config: cfg.WithDefaults(service.None, 1), Description: "Imports", Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open: func(_ context.Context, s *service.Service) error {
			w, err := s.Worker("imports", worker.Config{Consumer: "importer", Stream: jobs})
			if err != nil {
				return err
			}
			return worker.Handle(w, "jobs.import.normal.>", worker.Policy{}, func(context.Context, *worker.Job[string]) error { return nil })
		},
		Routes: func(*service.Router) {}, Streams: []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs},
	}
}

// importing starts a service that works the stream of imports, and stops it with the test.
func importing(t *testing.T, nc *nats.Conn, replicas int) *service.Service {
	t.Helper()
	s, err := service.Start(t.Context(), nc, imports(service.BaseConfig{Replicas: replicas}))
	check.OK(t, err)
	t.Cleanup(func() {
		check.Is(t, s.Stop(), nil)
	})
	return s
}

// A node that is away is named with each stream of which it has a replica. The service is ready without it.
func TestAMissingNodeIsNamed(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	nc, js := natstest.ConnectURL(t, c.URLs())
	declared(t, js, 3)
	ready := func() error {
		t.Helper()
		check.OK(t, c.WaitReady(t.Context()))
		return importing(t, nc, 3).Ready()["streams"]
	}
	check.Is(t, ready(), nil)
	away := c.Nodes[2]
	check.OK(t, away.Stop())
	err := ready()
	_, ok := errors.AsType[service.Note](err)
	check.Require(t, ok, "without a node: got %v, want a note", err)
	for _, stream := range []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs} {
		want := stream + ": node " + away.Name + " "
		check.That(t, strings.Contains(err.Error(), want), "%q does not say %q", err, want)
	}
	check.OK(t, away.Start(t.Context()))
	check.Is(t, ready(), nil)
}

// A consumer that is deleted is named, and the service is ready again when it is there.
func TestAMissingConsumerIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, js := natstest.Connect(t, srv)
		declared(t, js, 1)
		s := importing(t, nc, 1)
		elapse(10 * time.Second)
		check.OK(t, s.Ready()["imports"])
		consumer, err := js.Consumer(t.Context(), jobs, "importer")
		check.OK(t, err)
		check.OK(t, js.DeleteConsumer(t.Context(), jobs, "importer"))
		elapse(10 * time.Second)
		err = s.Ready()["imports"]
		check.Contains(t, err, "consumer "+jobs+"/importer is missing")
		check.OK(t, check.Err(js.CreateConsumer(t.Context(), jobs, consumer.CachedInfo().Config)))
		elapse(10 * time.Second)
		check.Is(t, s.Ready()["imports"], nil)
	})
}

// A service with CreateAssets changes no consumer that is there. It names the difference with which it cannot work.
func TestCreateAssetsKeepsAConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	options := contracts.AssetOptions{AckWait: 7 * time.Second, MaxBytes: 1, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(options), contracts.ApplyOptions{})))
	err := service.Run(t.Context(), imports(service.BaseConfig{CreateAssets: true, NATSConfig: service.NATSConfig{NATSURL: srv.URL()}}))
	check.Contains(t, err, jobs+"/importer", "ack_wait is 7s, must be 5s", "apply the declared settings)")
	c, err := js.Consumer(t.Context(), jobs, "importer")
	check.OK(t, err)
	check.Equal(t, options.AckWait, c.CachedInfo().Config.AckWait)
}
