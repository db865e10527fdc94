package directget_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Last requests the rest of an answer that a server ended early, and of one whose next message went away while it was read.
func TestLastRequestsTheRest(t *testing.T) {
	t.Parallel()
	for name, end := range map[string][2]string{
		"ended early":         {"204", ""},
		"a message went away": {"404", "Message Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, _ := natstest.Connect(t, natstest.Server(t))
			requests := make(chan string, 8)
			send := func(m *nats.Msg, headers ...string) {
				r := nats.NewMsg(m.Reply)
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				check.OK(t, nc.PublishMsg(r))
			}
			server := check.Must(nc.Subscribe("api.DIRECT.GET.S", func(m *nats.Msg) {
				requests <- string(m.Data)
				sequence, status, text, pending := "7", end[0], end[1], "1"
				if len(requests) > 1 {
					sequence, status, text, pending = "9", "204", "", "0"
				}
				send(m, "Nats-Subject", "a", "Nats-Sequence", sequence, "Nats-Time-Stamp", "2026-01-02T03:04:05Z")
				send(m, "Status", status, "Description", text, "Nats-Num-Pending", pending)
			}))(t)
			g := check.Must(directget.New(nc, "api."))(t)
			messages, err := g.Last(t.Context(), "S", []string{"a", "b"})
			check.OK(t, err)
			check.That(t, len(messages) == 2 && messages[0].Sequence == 7 && messages[1].Sequence == 9, "got %+v", messages)
			check.OK(t, server.Unsubscribe())
			check.OK(t, g.Close())
			check.Equal(t, len(requests), 2, "requests")
			check.Equal(t, <-requests, `{"multi_last":["a","b"]}`, "the first request")
			check.Equal(t, <-requests, `{"multi_last":["a","b"],"seq":8}`, "the second request")
		})
	}
}
