package directget

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func reply(headers ...string) *nats.Msg {
	m := nats.NewMsg("inbox")
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return m
}

var stored = []string{"Nats-Subject", "$KV.b.k", "Nats-Sequence", "7", "Nats-Time-Stamp", "2026-01-02T03:04:05.000000006Z"}

func TestAnswers(t *testing.T) {
	t.Parallel()
	one := reply(stored...)
	tests := []struct {
		name    string
		replies []*nats.Msg
		n       int
		more    bool
		err     error // errors.ErrUnsupported stands for any
	}{
		{"one message and the end", []*nats.Msg{one, reply("Status", "204", "Nats-Num-Pending", "0")}, 1, false, nil},
		{"the end, without a count", []*nats.Msg{one, reply("Status", "204")}, 1, false, nil},
		{"cut short", []*nats.Msg{one, reply("Status", "204", "Nats-Num-Pending", "3")}, 1, true, nil},
		{"none", []*nats.Msg{reply("Status", "404", "Description", "No Results")}, 0, false, nil},
		{"one went away meanwhile", []*nats.Msg{one, reply("Status", "404", "Description", "Message Not Found")}, 1, false, errGone},
		{"no server", []*nats.Msg{reply("Status", "503")}, 0, false, ErrNoReply},
		{"too many", []*nats.Msg{reply("Status", "413", "Description", "Too Many Results")}, 0, false, errors.ErrUnsupported},
		{"no sequence", []*nats.Msg{reply("Nats-Time-Stamp", stored[5])}, 0, false, errors.ErrUnsupported},
		{"bad time", []*nats.Msg{reply("Nats-Sequence", "1", "Nats-Time-Stamp", "yesterday")}, 0, false, errors.ErrUnsupported},
	}
	for _, tt := range tests {
		c := &answer{}
		for i, m := range tt.replies {
			last := c.add(m)
			check.Require(t, last == (i == len(tt.replies)-1), "%s: reply %d: last is %v", tt.name, i, last)
		}
		anyError := errors.Is(tt.err, errors.ErrUnsupported) && c.err != nil
		check.That(t, len(c.messages) == tt.n && c.more == tt.more && (anyError || errors.Is(c.err, tt.err)),
			"%s: got %d messages, more %v, %v", tt.name, len(c.messages), c.more, c.err)
	}
	forged := reply("Status", "204", "Nats-Sequence", "1")
	for i := 0; i < len(stored); i += 2 {
		forged.Header.Add(stored[i], stored[i+1])
	}
	c := &answer{}
	check.That(t, !c.add(forged) && len(c.messages) == 1 && c.messages[0].Sequence == 7, "headers of a message count for the server's: %+v", c)
	for missing, gap := range map[string]bool{"6": true, "7": false} { // of the message before the second one
		second := reply("Nats-Subject", "a", "Nats-Sequence", "9", "Nats-Time-Stamp", stored[5], "Nats-Last-Sequence", missing)
		first := reply(append(stored, "Nats-Last-Sequence", "0")...)
		c := &answer{}
		for _, m := range []*nats.Msg{first, second, reply("Status", "204", "Nats-Last-Sequence", "9")} {
			c.add(m)
		}
		check.Equal(t, c.cutAtGap(), gap, "a message is missing before", missing)
	}
	m, err := Pushed(one)
	check.That(t, err == nil && m.Sequence == 7 && m.Subject == "$KV.b.k" && m.Time.Equal(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)),
		"got %+v, %v", m, err)
}

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
			g := check.Must(New(nc, "api.", nil))(t)
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

// Nothing is sent while the connection is lost, and a read waits for its return.
func TestReadsWaitForTheConnection(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(nc.Subscribe("api.DIRECT.GET.S", func(m *nats.Msg) {
		r := nats.NewMsg(m.Reply)
		r.Header.Set("Status", "404")
		check.OK(t, nc.PublishMsg(r))
	})))
	asked := 0
	g := check.Must(New(nc, "api.", func() error {
		asked++
		if asked < 3 {
			return nats.ErrDisconnected
		}
		return nil
	}))(t)
	messages, err := g.Last(t.Context(), "S", []string{"a"})
	check.That(t, err == nil && len(messages) == 0 && asked == 3, "asked %d times: %+v, %v", asked, messages, err)
	check.OK(t, g.Close())
}
