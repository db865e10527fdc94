package notifier

import (
	"bytes"
	"net/mail"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// A mail that the server takes at the second attempt only is the same as at the first, to the letter, and has the date of that, not
// the one of its event.
func TestAMailThatIsTriedAgainStaysTheSame(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}})
	var letters [][]byte
	far := newFar(t, 0)
	far.read = func(_ string, raw []byte) error {
		if letters = append(letters, raw); len(letters) == 1 {
			return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "come back later"}
		}
		return nil
	}
	texts, err := template.Load(writeTexts(t, "X", "A table", "{{.Payload}}", ""), template.Config{})
	check.OK(t, err)
	mails, err := email.New(email.Config{Address: far.mail, From: "notify@example.com", Security: email.Plain, Templates: texts})
	check.OK(t, err)
	t.Cleanup(mails.Close)
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "{version: 1, events: {X: {ADMIN: {scope: all, channels: [email]}}}}")
		c.Channels = []Channel{{Channel: mails, Retries: []time.Duration{1500 * time.Millisecond}}} // in another second
	})
	p.publish(event("late", "X", func(e *contracts.Event) { e.OccurredAt = time.Now().Add(-time.Hour) }))
	d := p.settled(1)["late.email.ADMIN.ada"]
	check.Is(t, n.Stop(), nil)
	if len(letters) != 2 || d.State != deliveries.Sent || len(d.Attempts) != 2 {
		t.Fatalf("%d letters, %+v", len(letters), d)
	}
	dates := [2]string{}
	for i, letter := range letters {
		msg, err := mail.ReadMessage(bytes.NewReader(letter))
		check.OK(t, err)
		dates[i] = msg.Header.Get("Date") + msg.Header.Get("Message-Id")
		if date, err := msg.Header.Date(); err != nil || !date.Equal(d.Attempts[0].At.Truncate(time.Second)) {
			t.Errorf("attempt %d has the date %s, %v: want that of the first, %s", i+1, date, err, d.Attempts[0].At)
		}
	}
	check.Same(t, "date and id of both", dates[1], dates[0])
}
