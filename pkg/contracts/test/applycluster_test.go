package test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// refusals calls a function when the server first refuses to make a stream.
type refusals struct {
	jetstream.StreamManager

	refused func()
}

func (r *refusals) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := r.StreamManager.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(api.Description, "no suitable peers for placement") {
		r.refused()
	}
	return stream, err
}

// Streams of all three kinds are applied while no node knows what room the third one has.
func TestApplyWaitsForTheCluster(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	down := natstest.Forget(t, c)
	options := contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: 3}
	want := []jetstream.StreamConfig{contracts.Streams(options)[0], contracts.Buckets(options)[0], contracts.Objects(options)[0]}

	changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{Wait: time.Second})
	for errors.Is(err, context.DeadlineExceeded) { // a busy server, and not an answer
		changes, err = contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{Wait: time.Second})
	}
	check.Require(t, errors.Is(err, jsretry.ErrNotReady) && len(changes) == len(want),
		"without the node: got %v, %v, want ErrNotReady", changes, err)
	for i, change := range changes {
		check.Contains(t, change.Err, want[i].Name, "no suitable peers for placement", "see that its nodes are up")
	}

	var once sync.Once
	started := make(chan error, 1)
	manager := &refusals{js, func() { once.Do(func() { go func() { started <- down.Start(t.Context()) }() }) }}
	changes, err = contracts.Apply(t.Context(), manager, want, contracts.ApplyOptions{})
	got := actions(changes)
	check.That(t, err == nil && got[contracts.ActionCreate] == len(want), "got %v, %v, want all created once the node is back", changes, err)
	once.Do(func() {
		t.Error("the server has refused nothing")
		started <- nil
	})
	check.Is(t, <-started, nil)
	differences := compare(t, js, want)
	check.That(t, differences == nil, "got %v", differences)
	if err := c.WaitReady(t.Context()); err != nil { // a server that is stopped while it makes a replica leaves a goroutine
		t.Error(err)
	}
}

// What was done although its answer was lost is reported as done.
func TestApplyReportsWhatItDidWithoutAnAnswer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := natstest.NewProxy(t, srv)
		_, js := natstest.Connect(t, srv, p.Through())
		want := contracts.Streams(contracts.AssetOptions{})[:1]
		for _, tt := range []struct {
			action  contracts.Action
			request string
			age     time.Duration
		}{{contracts.ActionCreate, "CREATE", 1000 * time.Hour}, {contracts.ActionUpdate, "UPDATE", 2000 * time.Hour}} {
			want[0].MaxAge = tt.age
			p.Hit(func(f natstest.Frame) bool { return f.Subject == "$JS.API.STREAM."+tt.request+"."+want[0].Name }, natstest.ReplyLost, 1)
			changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
			check.That(t, err == nil && changes[0].Action == tt.action && len(changes[0].Differences) == 1,
				"%s: got %v, %v", tt.action, changes, err)
		}
	})
}
