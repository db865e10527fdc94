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
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
)

// declared makes the streams and consumers of the importer.
func declared(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	options := contracts.AssetOptions{MaxBytes: 1, Replicas: replicas, Services: []string{contracts.ServiceImporter}}
	if _, err := contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(options), contracts.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
}

// importing starts a service that works the stream of imports, and stops it with the test.
func importing(t *testing.T, nc *nats.Conn, replicas int) *service.Service {
	t.Helper()
	cfg := service.BaseConfig{Logger: slog.New(slog.DiscardHandler), MaxBytes: 1, Replicas: replicas}
	s, err := service.Start(t.Context(), nc, service.Spec{
		Config: cfg.WithDefaults(service.None, 1), Description: "Imports", Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open: func(_ context.Context, s *service.Service) error {
			w, err := s.Worker("imports", worker.Config{Consumer: "importer", Stream: jobs})
			if err != nil {
				return err
			}
			return worker.Handle(w, "jobs.import.normal.>", worker.Policy{}, func(context.Context, *worker.Job[string]) error { return nil })
		},
		Routes: func(*service.Router) {}, Streams: []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
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
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		return importing(t, nc, 3).Ready()["streams"]
	}
	if err := ready(); err != nil {
		t.Errorf("with all nodes: %v", err)
	}
	away := c.Nodes[2]
	if err := away.Stop(); err != nil {
		t.Fatal(err)
	}
	err := ready()
	if _, ok := errors.AsType[service.Note](err); !ok {
		t.Fatalf("without a node: got %v, want a note", err)
	}
	for _, stream := range []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs} {
		if want := stream + ": node " + away.Name + " is "; !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := away.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ready(); err != nil {
		t.Errorf("with all nodes again: %v", err)
	}
}

// A consumer that is deleted is named, and the service is ready again when it is there.
func TestAMissingConsumerIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, js := natstest.Connect(t, srv)
		declared(t, js, 1)
		s := importing(t, nc, 1)
		elapse(10 * time.Second)
		if err := s.Ready()["imports"]; err != nil {
			t.Fatal(err)
		}
		consumer, err := js.Consumer(t.Context(), jobs, "importer")
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteConsumer(t.Context(), jobs, "importer"); err != nil {
			t.Fatal(err)
		}
		elapse(10 * time.Second)
		err = s.Ready()["imports"]
		if err == nil || !strings.Contains(err.Error(), "consumer "+jobs+"/importer is missing") {
			t.Errorf("got %v, want one that names the consumer and its stream", err)
		}
		if _, err := js.CreateConsumer(t.Context(), jobs, consumer.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		elapse(10 * time.Second)
		if err := s.Ready()["imports"]; err != nil {
			t.Errorf("it is there again: %v", err)
		}
	})
}
