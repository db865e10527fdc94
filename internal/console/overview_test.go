package console_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestAStreamThatIsBeingDeleted wants no problem of a server whose health check misses a stream for a moment only.
func TestAStreamThatIsBeingDeleted(t *testing.T) {
	for name, healthy := range map[string]bool{"for a moment": true, "for good": false} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			nc, _ := natstest.Connect(t, srv)
			asked := 0
			check.OK(t, check.Err(nc.Subscribe("$SYS.REQ.SERVER.PING.HEALTHZ", func(m *nats.Msg) {
				answer := `{"server":{"name":"n1"},"data":{"status":"unavailable","error":"JetStream stream 'A > B' could not be recovered"}}`
				asked++
				if asked > 1 && healthy {
					answer = `{"server":{"name":"n1"},"data":{"status":"ok"}}`
				}
				check.OK(t, m.Respond([]byte(answer)))
			})))
			all := console.AskHealth(t.Context(), nc, 5*time.Second)
			check.That(t, len(all) == 1 && (all[0].Data.Status == "ok") == healthy && asked == 2, "asked %d times: %+v", asked, all)
		})
	}
}
