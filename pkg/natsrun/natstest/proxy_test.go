package natstest_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
			check.Same(t, "asked, times", asked.Load(), want.asked)
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
		check.Failsf(t, check.Err(p.InProcessConn()), "a new connection was let in")
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
				check.Same(t, fmt.Sprintf("aimed at %d: answers", n), sum, want)
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
			check.Same(t, "messages are stored", int(info.State.Msgs), stored)
		})
	}
}
