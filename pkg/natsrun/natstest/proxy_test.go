package natstest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestBubbleBeginsAtAMoment(t *testing.T) {
	begin := time.Date(2000, 8, 26, 15, 30, 0, 0, time.UTC)
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		stream := check.Must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
		created := stream.CachedInfo().Created
		check.That(t, !created.Before(begin) && !created.After(begin.Add(time.Second)), "the stream was created at %s, want %s", created, begin)
	}, natstest.At(begin))
}

// A request takes its timer from a pool of the process. The runtime ends the
// process when a timer of a bubble is set outside it.
func TestBubbleLeavesNoTimersBehind(t *testing.T) {
	ask := func(t *testing.T, srv *natsrun.Server) {
		t.Helper()
		nc, _ := natstest.Connect(t, srv)
		check.ErrorIs(t, check.Err(nc.Request("$JS.API.INFO", nil, time.Minute)), nil)
	}
	for range 3 {
		natstest.Bubble(t, ask)
		ask(t, natstest.Server(t))
	}
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestMain of this package does not call NodeMain, as a program that forgot it.
func TestClustersNeedNodeMain(t *testing.T) {
	t.Parallel()
	_, err := natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{})
	check.That(t, errors.Is(err, natsrun.ErrNoNodeMain) && strings.Contains(err.Error(), "TestMain"),
		"got %v, want ErrNoNodeMain that says where to call it", err)
}
