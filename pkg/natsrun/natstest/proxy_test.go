package natstest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

func TestProxyChangesAndDelays(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		answerer(t, srv)
		p := natstest.NewProxy(t, srv)
		nc, _ := natstest.Connect(t, srv, p.Through())
		p.Slow(time.Second)
		p.Change(func(f natstest.Frame) []byte {
			if f.FromClient || !bytes.Equal(f.Payload(), []byte("first")) {
				return nil
			}
			return f.With([]byte("another"), 0)
		})
		start := time.Now()
		m, err := nc.Request("ask", nil, time.Minute)
		check.That(t, err == nil && string(m.Data) == "another" && time.Since(start) == time.Second,
			"got %v, %v after %s", m, err, time.Since(start))
	})
}

func TestProxyPartition(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		answerer(t, srv)
		p := natstest.NewProxy(t, srv)
		nc, _ := natstest.Connect(t, srv, p.Through())
		p.Partition()
		if m, err := nc.Request("ask", nil, time.Second); err == nil || !nc.IsConnected() {
			t.Errorf("got %v through a partition, or knows of it: %s", m, nc.Status())
		}
		p.Heal()
		for start := time.Now(); ; {
			if _, err := nc.Request("ask", nil, time.Second); err == nil {
				break
			} else if time.Since(start) > time.Minute {
				t.Fatal(err)
			}
		}
		n := p.Subscriptions()
		check.That(t, n != 0, "no subscription was seen")
		p.Cut()
		check.That(t, check.Err(p.InProcessConn()) != nil, "a new connection was let in")
	})
}

// Each mishap hits the message that it is aimed at: whether that arrives, whether it is answered, and how long nothing passes.
func TestWireStrikesTheMessageItIsAimedAt(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			_, direct := natstest.Connect(t, srv)
			stream := check.Must(direct.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
			wire := natstest.NewWire(t, srv, mishap)
			var nc *nats.Conn
			start := func() { nc, _ = natstest.Connect(t, srv, wire.Connect()...) }
			start()
			const requests, timeout = 4, time.Second
			for n, struck := 1, true; struck; n++ {
				check.Require(t, n <= requests+1, "there is no end of messages")
				wire.Aim(n)
				work := nc
				answered := make(chan int, 1)
				go func() {
					sum := 0
					for range requests {
						if _, err := work.Request("s", nil, timeout); err == nil {
							sum++
						}
					}
					answered <- sum
				}()
				sum := -1
				_, struck = wire.Until(time.Minute, func() string {
					select {
					case sum = <-answered:
					default:
					}
					if sum < 0 {
						return "requests"
					}
					return ""
				}, start)
				want := requests
				if struck {
					want--
				}
				if mishap.Dies && struck {
					want = n - 1
				}
				check.Equal(t, sum, want, fmt.Sprintf("aimed at %d: answers", n))
			}
			info := check.Must(stream.Info(t.Context()))(t)
			stored := requests * (requests + 1)
			switch {
			case mishap.Dies && mishap.Answered:
				stored = 1 + 2 + 3 + 4 + requests
			case mishap.Dies:
				stored = 0 + 1 + 2 + 3 + requests
			case !mishap.Answered:
				stored -= requests
			}
			check.Equal(t, int(info.State.Msgs), stored, "messages are stored")
		})
	}
}

func TestBubbleExpiresAKeyAtItsInstant(t *testing.T) {
	const ttl = 7 * 24 * time.Hour
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		ctx := t.Context()
		kv := check.Must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", LimitMarkerTTL: time.Hour}))(t)
		check.OK(t, check.Err(kv.Create(ctx, "k", []byte("v"), jetstream.KeyTTL(ttl))))
		natstest.Pass(ttl - time.Second)
		check.ErrorIs(t, check.Err(kv.Get(ctx, "k")), nil)
		natstest.Pass(2 * time.Second)
		check.ErrorIs(t, check.Err(kv.Get(ctx, "k")), jetstream.ErrKeyNotFound)
	})
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

// noted keeps the failures of a test.
type noted struct {
	testing.TB

	texts []string
}

func (n *noted) Errorf(format string, args ...any) {
	n.texts = append(n.texts, fmt.Sprintf(format, args...))
}

func TestBackgroundEndsAtTheLatestWithTheTest(t *testing.T) {
	ended := 0
	f := func(ctx context.Context) error {
		<-ctx.Done()
		ended++
		return io.EOF
	}
	n := &noted{}
	t.Run("stopped", func(t *testing.T) {
		n.TB = t
		stop := natstest.Background(n, f)
		stop()
		check.Equal(t, ended, 1, "work that ended before Stop returned")
		stop()
	})
	t.Run("not stopped", func(t *testing.T) {
		n.TB = t
		natstest.Background(n, f)
	})
	want := []string{"in the background: EOF", "in the background: EOF"}
	check.That(t, ended == 2 && slices.Equal(n.texts, want), "ended %d times, reported %q, want %q", ended, n.texts, want)
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

func TestServerAppliesEveryMutation(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t,
		func(c *natsrun.Config) { c.ServerName = "first" },
		func(c *natsrun.Config) { c.ServerName += "-second" },
	)
	nc, _ := natstest.Connect(t, srv)
	check.Equal(t, nc.ConnectedServerName(), "first-second", "server name")
}
