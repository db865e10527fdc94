package natstest_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// answerer answers the messages to "ask", and counts them.
func answerer(t *testing.T, srv *natsrun.Server) (asked *atomic.Int32) {
	t.Helper()
	nc, _ := natstest.Connect(t, srv)
	asked = new(atomic.Int32)
	_, err := nc.Subscribe("ask", func(m *nats.Msg) {
		answer := "first"
		if asked.Add(1) > 1 {
			answer = "later"
		}
		_ = m.Respond([]byte(answer)) // the requester's result shows it
	})
	check.OK(t, err)
	check.OK(t, nc.Flush())
	return asked
}

func TestProxyFaults(t *testing.T) {
	for how, want := range map[natstest.Fault]struct {
		answer string // "" for none
		asked  int32
	}{
		natstest.RefusedApplied: {"later", 2},
		natstest.ReplyLost:      {"", 1},
		natstest.WriteLost:      {"", 0},
	} {
		natstest.RunBubble(t, string(how), func(t *testing.T, srv *natsrun.Server) {
			asked := answerer(t, srv)
			p := natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, p.Through())
			p.Hit(func(f natstest.Frame) bool { return f.Subject == "ask" }, how, 1)
			m, err := nc.Request("ask", []byte("?"), time.Second)
			got := err == nil
			check.That(t, got == (want.answer != "") && (!got || string(m.Data) == want.answer), "got %v, %v; want %q", m, err, want.answer)
			check.Equal(t, asked.Load(), want.asked, "asked, times")
			_, err = nc.Request("ask", nil, time.Second)
			check.That(t, err == nil, "the next is lost as well: %v", err)
		})
	}
}

func TestBubbleRedeliversAfterAckWaitOverARestart(t *testing.T) {
	const ackWait = time.Hour
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		reconnected := make(chan struct{}, 1)
		_, js := natstest.Connect(t, srv, nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
		ctx := t.Context()
		stream := check.Must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
		consumer := check.Must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "c", AckWait: ackWait}))(t)
		check.OK(t, check.Err(js.Publish(ctx, "s", []byte("job"))))
		delivered := time.Now()
		check.OK(t, check.Err(consumer.Next()))
		check.OK(t, srv.Restart(ctx))
		<-reconnected // earlier requests may be lost
		msg := check.Must(consumer.Next(jetstream.FetchMaxWait(2 * ackWait)))(t)
		waited := time.Since(delivered)
		check.That(t, waited >= ackWait && waited <= ackWait+time.Minute, "redelivered after %s, want %s: %v", waited, ackWait, msg)
	})
}

func TestBubbleBeginsAtAMoment(t *testing.T) {
	begin := time.Date(2000, 8, 26, 15, 30, 0, 0, time.UTC)
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		stream := check.Must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
		created := stream.CachedInfo().Created
		check.That(t, !created.Before(begin) && !created.After(begin.Add(time.Second)), "the stream was created at %s, want %s", created, begin)
	}, natstest.At(begin))
}

// A change of a stream's configuration has the server compare the ages of the messages at once.
func TestBubbleKeepsWhatIsYoungerThanMaxAge(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxAge: time.Hour}
		check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
		check.OK(t, check.Err(js.Publish(t.Context(), "s", nil)))
		cfg.Description = "changed"
		stream := check.Must(js.UpdateStream(t.Context(), cfg))(t)
		info := check.Must(stream.Info(t.Context()))(t)
		check.Equal(t, info.State.Msgs, 1, "messages")
	})
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
