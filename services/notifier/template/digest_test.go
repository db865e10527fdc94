package template_test

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// A digest has a text also where nobody wrote one, and its own where somebody did.
func TestADigestWithoutATemplate(t *testing.T) {
	t.Parallel()
	set, err := template.Parse(fstest.MapFS{
		"c.digest/default.subject": {Data: []byte("news")}, "c.digest/default.txt": {Data: []byte("{{range .Payload.items}}{{with .payload}}{{.a}}{{end}};{{end}}")},
	}, template.Config{})
	check.OK(t, err)
	m := channel.Message{
		EventType: "DIGEST", Template: "d.digest",
		Payload: json.RawMessage(`{"count":7,"items":[
			{"event_type":"ORDER_CREATED","created_at":"2000-01-01T00:00:00Z","payload":{"a":1}},{"event_type":"Y","created_at":"2000-01-01T01:00:00Z","payload":null}],"more":5}`),
	}
	text, err := set.Render(m, "email", "")
	want := "- Order created, 2000-01-01 00:00 UTC\n- Y, 2000-01-01 01:00 UTC\nand 5 more\n"
	check.That(t, err == nil && text.Subject == "7 notifications" && text.Text == want, "%q %q, %v", text.Subject, text.Text, err)
	text, err = set.Render(m, "sms", "")
	check.That(t, err == nil && text.Text == "7 notifications", "%q, %v", text.Text, err)
	m.Template = "c.digest"
	text, err = set.Render(m, "email", "")
	check.That(t, err == nil && text.Subject == "news" && text.Text == "1;;", "%q %q, %v", text.Subject, text.Text, err)
	m.EventType, m.Template = "X", "x"
	_, err = set.Render(m, "email", "")
	check.That(t, err != nil, "what is no digest has a text")
}
