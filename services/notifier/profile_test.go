package notifier

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// A mistake in a profile costs what the field is for, and not every notification of its user. A row that nobody can send says why.
func TestAMistakeInAProfile(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := newPlace(t, srv)
	for user, fields := range map[string]string{"ada": `"locale":"en us","time_zone":5`, "eve": `"opt_out":{"news":"pigeon"}`} {
		data := `{"user_id":"` + user + `","recipient_type":"CUSTOMER",` + fields + `}`
		check.OK(t, check.Err(p.js.Publish(t.Context(), "$KV.directory.CUSTOMER."+user, []byte(data))))
	}
	w := newWeb(t, p.start(&pigeon{}, func(c *Config) {
		c.Listen = "127.0.0.1:0"
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [pigeon]}}}")
	}))
	for _, user := range []string{"ada", "eve"} {
		p.publish(event(user, "X", func(e *contracts.Event) { e.UserID = user }))
	}
	all := p.settled(2)
	check.Same(t, "state", all["ada.pigeon.CUSTOMER.ada"].State, deliveries.Sent)
	if row := all["eve.pigeon.CUSTOMER.eve"]; row.State != deliveries.Failed || row.Reason != deliveries.ReasonRecipient {
		t.Errorf("%+v", row)
	}
	if _, answer := w.call("GET", "/v1/notifications?event=eve", ""); !strings.Contains(answer, `"detail":"recipients: $KV.directory.CUSTOMER.eve: contracts: invalid Recipient: /opt_out/news must be`) {
		t.Error(answer)
	}
}
