package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// declared makes the streams and consumers of the importer.
func declared(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	options := contracts.AssetOptions{MaxBytes: 1, Replicas: replicas, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(options), provision.Options{})))
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
	s := check.Must(service.Start(t.Context(), nc, imports(service.BaseConfig{Replicas: replicas})))(t)
	t.Cleanup(func() {
		check.ErrorIs(t, s.Stop(), nil)
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
	check.ErrorIs(t, ready(), nil)
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
	check.ErrorIs(t, ready(), nil)
}

// A consumer that is deleted is named, and the service is ready again when it is there.
func TestAMissingConsumerIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, js := natstest.Connect(t, srv)
		declared(t, js, 1)
		s := importing(t, nc, 1)
		natstest.Pass(10 * time.Second)
		check.OK(t, s.Ready()["imports"])
		consumer, err := js.Consumer(t.Context(), jobs, "importer")
		check.OK(t, err)
		check.OK(t, js.DeleteConsumer(t.Context(), jobs, "importer"))
		natstest.Pass(10 * time.Second)
		err = s.Ready()["imports"]
		check.ErrorContains(t, err, "consumer "+jobs+"/importer is missing")
		check.OK(t, check.Err(js.CreateConsumer(t.Context(), jobs, consumer.CachedInfo().Config)))
		natstest.Pass(10 * time.Second)
		check.ErrorIs(t, s.Ready()["imports"], nil)
	})
}

// A service with CreateAssets changes no consumer that is there. It names the difference with which it cannot work.
func TestCreateAssetsKeepsAConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	options := contracts.AssetOptions{AckWait: 7 * time.Second, MaxBytes: 1, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(options), provision.Options{})))
	err := service.Run(t.Context(), imports(service.BaseConfig{CreateAssets: true, NATSConfig: service.NATSConfig{NATSURL: srv.URL()}}))
	check.ErrorContains(t, err, jobs+"/importer", "ack_wait is 7s, must be 5s", "apply the declared settings)")
	c := check.Must(js.Consumer(t.Context(), jobs, "importer"))(t)
	check.Equal(t, c.CachedInfo().Config.AckWait, options.AckWait)
}

const (
	recipes = "KV_" + contracts.BucketRecipes
	objects = "OBJ_" + contracts.BucketImportSteps
)

// stored checks the check of the stores, and its metric: passed, or failed with a text.
func (sh *store) stored(says string) {
	sh.Helper()
	if err := sh.service.Ready()["store"]; (err == nil) != (says == "") || !strings.Contains(fmt.Sprint(err), says) {
		sh.Errorf("the check of the stores is %v, want %q", err, says)
	}
	sh.shows(map[bool]string{true: "1", false: "0"}[says == ""], "service_ready", "store")
}

// A store that does not acknowledge writes is named within 5 seconds, and is believed again at the first write that it
// acknowledges, also when an answer was lost and the record has expired.
func TestAStoreThatTakesNoWritesIsNamed(t *testing.T) {
	inStore(t, func(sh *store) {
		for stream, subject := range map[string]string{recipes: "$KV.recipes.ready.", objects: "$O.import-steps.C.ready."} {
			for _, lost := range []bool{true, false} { // the write, or its answer
				sh.stored("")
				sh.proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					if lost && f.FromClient && strings.HasPrefix(f.Subject, subject) ||
						!lost && !f.FromClient && strings.Contains(string(f.Payload()), `"stream":"`+stream+`"`) {
						return natstest.Lose
					}
					return natstest.Relay
				})
				natstest.Pass(5 * time.Second)
				sh.stored(stream + " for ")
				sh.stored("not acknowledged")
				natstest.Pass(2 * time.Minute)
				sh.stored(stream + " for 2m")
				sh.proxy.Filter(nil)
				natstest.Pass(5 * time.Second)
			}
		}
		sh.stored("")
	})
}

// A deleted bucket is named within 5 seconds, and one that is full for as long as it is.
func TestAStoreThatIsMissingOrFullIsNamed(t *testing.T) {
	inStore(t, func(sh *store) {
		s := check.Must(sh.js.Stream(sh.Context(), recipes))(sh)
		check.OK(sh, sh.js.DeleteStream(sh.Context(), recipes))
		natstest.Pass(5 * time.Second)
		sh.stored(recipes + " for ")
		sh.stored("is missing")
		full := s.CachedInfo().Config
		full.MaxMsgs = 1
		check.OK(sh, check.Err(sh.js.CreateStream(sh.Context(), full)))
		check.OK(sh, check.Err(sh.js.Publish(sh.Context(), "$KV.recipes.x", nil)))
		natstest.Pass(5 * time.Second)
		sh.stored("maximum messages")
		full.MaxMsgs = -1
		check.OK(sh, check.Err(sh.js.UpdateStream(sh.Context(), full)))
		natstest.Pass(5 * time.Second)
		sh.stored("")
	})
}

// The record of a service is one in each store, no client of the store sees it, and it ends a minute after the service.
func TestTheRecordOfReadinessIsNoData(t *testing.T) {
	inStore(t, func(sh *store) {
		natstest.Pass(time.Hour)
		count := func(want uint64) {
			sh.Helper()
			for _, name := range []string{recipes, objects} {
				s := check.Must(sh.js.Stream(sh.Context(), name))(sh)
				check.Equal(sh, s.CachedInfo().State.Msgs, want, name+" has messages")
			}
		}
		count(1)
		kv := check.Must(sh.js.KeyValue(sh.Context(), contracts.BucketRecipes))(sh)
		if keys, err := kv.Keys(sh.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
			sh.Errorf("the bucket has %v, %v", keys, err)
		}
		files := check.Must(sh.js.ObjectStore(sh.Context(), contracts.BucketImportSteps))(sh)
		if all, err := files.List(sh.Context()); !errors.Is(err, jetstream.ErrNoObjectsFound) {
			sh.Errorf("the object store has %v, %v", all, err)
		}
		check.ErrorIs(sh, sh.service.Stop(), nil)
		natstest.Pass(62 * time.Second)
		count(0)
	})
}
