package natstest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// What each mishap leaves of a message, and for how long nothing passes.
func TestWireStrikesTheMessageItIsAimedAt(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			_, direct := natstest.Connect(t, srv)

			stream, err := direct.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
			check.OK(t, err)

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

			info, err := stream.Info(t.Context())
			check.OK(t, err)

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
