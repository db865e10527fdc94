package test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// A server that looks for the first message for longer than a request lasts, and forgets it then, is given more time.
func TestPullOutlastsASlowServer(t *testing.T) {
	for _, look := range []time.Duration{1300 * time.Millisecond, 5 * time.Second} {
		natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
			nc, _ := natstest.Connect(t, srv)
			var asked atomic.Int64
			delivered := make(chan bool, 1)
			_, err := nc.Subscribe("pull", func(m *nats.Msg) {
				var request struct {
					Expires time.Duration `json:"expires"`
				}
				check.OK(t, json.Unmarshal(m.Data, &request))
				asked.Add(1)
				pass(look)
				answer := &nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"408"}}}
				if request.Expires > look {
					answer = &nats.Msg{Subject: m.Reply, Reply: "ack"}
				}
				check.OK(t, nc.PublishMsg(answer))
			})
			check.OK(t, err)
			p := pull.New(pull.Config{
				Conn: nc, Expires: time.Second, Free: func() int { return 1 - len(delivered) }, Up: func() {}, Down: func(error) {},
				Lost:    func(context.Context, error) {},
				Deliver: func(*nats.Msg, time.Time) uint64 { delivered <- true; return 0 },
				Sources: []pull.Source{{Paused: func() bool { return false }, Subject: "pull", Weight: 1}},
			})
			stop := natstest.Background(t, p.Run)
			until(t, "the message to come", func() bool { return len(delivered) > 0 })
			check.That(t, asked.Load() <= 5, "the server was asked %d times", asked.Load())
			stop()
		})
	}
}
