package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// Neither a job of a service nor its dead letter shows what is of a person, or secret, to those who may only read.
func TestPeopleAreNotShown(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	viewer := []string{"Authorization", "Bearer " + secrets["viewer"]}
	const person = `{"user_id":"hunter2","recipient_type":"CUSTOMER","addresses":{"email":"hunter2@a.example"}}`
	for stream, m := range map[string]struct{ subject, payload, shown string }{
		contracts.StreamEnrichJobs: {"jobs.enrich.WOLT.p1", `{"provider":"WOLT","placeId":"p1","address":"Main St 1"}`, "Main St 1"},
		contracts.StreamImportJobs: {"jobs.import.high.j1", `{"job_id":"j1","owner_id":"hunter2","url":"https://x:hunter2@a.example/p"}`, "a.example/p"},
		contracts.StreamEvents: {
			"events.USER.HELLO", `{"event_id":"e1","user_id":"hunter2","recipients":[` + person + `],"payload":{"mail":"hunter2@a.example"}}`, "e1",
		},
		contracts.StreamNotifications: {
			"notify.send.email.CUSTOMER.u.e1", `{"event_id":"e1","user_id":"hunter2","recipient":` + person + `}`, "email",
		},
	} {
		ack, err := s.JetStream.PublishMsg(t.Context(), &nats.Msg{
			Data: []byte(m.payload), Header: nats.Header{"Job-Id": {"j"}, "Reply-To": {"hunter2@a.example"}}, Subject: m.subject,
		})
		check.OK(t, err)
		letter := s.PutLetters(consoletest.Letter(1, func(l *worker.DeadLetter) {
			l.Payload, l.Stream, l.Subject, l.Error = []byte(m.payload), stream, m.subject, "550 no such user <hunter2@a.example>"
		}))
		for _, path := range []string{
			fmt.Sprintf("/jobs/%s/%d", stream, ack.Sequence), fmt.Sprintf("/dead/letter?seq=%d", letter), "/dead?subject=" + m.subject,
		} {
			page := s.Get(path, 200, viewer...)
			check.Says(t, page, m.shown)
			check.That(t, !strings.Contains(page, "hunter2"), "%s shows what is of people: %s", path, page)
		}
	}
}
