package natstest_test

import (
	"bufio"
	"errors"
	"io"
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

// A connection that the server has not accepted ends with a partition, at once. nats.go would wait for the server under its lock.
func TestPartitionEndsAConnectionThatIsBeingMade(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		for name, greeted := range map[string]bool{"before INFO": false, "before CONNECT": true} {
			p := natstest.NewProxy(t, srv)
			conn := check.Must(p.InProcessConn())(t)
			began, r := time.Now(), bufio.NewReader(conn)
			if greeted {
				check.OK(t, check.Err(r.ReadString('\n')))
			}
			p.Partition()
			_, _ = conn.Write([]byte("CONNECT {}\r\nPING\r\n")) // it may have ended
			_, err := io.Copy(io.Discard, r)
			check.That(t, err == nil && time.Since(began) == 0, "%s: it ended after %s: %v", name, time.Since(began), err)
		}
	})
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
