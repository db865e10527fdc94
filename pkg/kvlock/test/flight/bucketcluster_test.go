package flight_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// transients calls a function when the cluster is first found not ready to make a stream.
type transients struct {
	jetstream.JetStream

	found func()
}

func (s *transients) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.JetStream.CreateStream(ctx, cfg)
	if jsretry.Transient(err) {
		s.found()
	}
	return stream, err
}

func TestBucketsAreMadeOnceTheClusterIsReady(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	down := natstest.Forget(t, c)
	var once sync.Once
	started := make(chan error, 1)
	watched := &transients{js, func() { once.Do(func() { go func() { started <- down.Start(t.Context()) }() }) }}
	cfg := kvlock.BucketConfig{Bucket: bucket, Replicas: 3}
	check.Is(t, errors.Join(kvlock.CreateBucket(t.Context(), watched, cfg), flight.CreateLargeValueBucket(t.Context(), js, cfg)), nil)
	once.Do(func() {
		t.Error("the server has refused nothing")
		started <- nil
	})
	if err := errors.Join(<-started, c.WaitReady(t.Context())); err != nil { // a node that is stopped while it makes a replica leaves a goroutine
		t.Error(err)
	}
}
