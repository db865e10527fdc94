package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// hiding decodes a message, and removes its personal members.
func hiding(t *testing.T, subject, message string) (text string, hidden []string) {
	t.Helper()
	var value any
	check.OK(t, json.Unmarshal([]byte(message), &value))
	value, hidden = concealSecrets(subject, value)
	shown := check.Must(json.Marshal(value))(t)
	return string(shown), hidden
}

func TestConceal(t *testing.T) {
	t.Parallel()
	const person = `{"user_id":"private","recipient_type":"CUSTOMER","addresses":{"email":"private@a.example"},` +
		`"endpoints":{"webhook":{"x":{"address":"https://a.example/private","name":"private"}}},"locale":"he","time_zone":"Asia/Jerusalem"}`
	for _, c := range []struct{ subject, message, shown, hidden string }{
		{
			"events.USER.HELLO", `{"event_id":"e1","user_id":"private","recipients":[` + person + `],"payload":{"name":"Soup","email":"private@a.example",` +
				`"auth_token":"private","to":"write to private@a.example or +972501234567","items":[{"apiKey":"private"}]},"route":{"channels":["email"]}}`,
			`"e1" "Soup" "channels" "write to …"`, "[apiKey auth_token email recipients user_id]",
		},
		{
			"jobs.import.high.j1", `{"job_id":"j1","owner_id":"private","url":"https://u:private@a.example/x?token=private","source_type":"web"}`,
			`"j1" "https://a.example/x" "web"`, "[owner_id]",
		},
		{
			"jobs.enrich.WOLT.p1", `{"provider":"WOLT","placeId":"p1","name":"פיצה","address":"Main St 1","phone":"03-555","claim":"c"}`,
			`"p1" "פיצה" "Main St 1" "03-555"`, "[]",
		}, // those of a place, which everybody may know
		{
			"notify.send.email.CUSTOMER.u.e1", `{"event_id":"e1","user_id":"private","channel":"email","address":"work","recipient":` + person + `}`,
			`"e1" "work"`, "[recipient user_id]",
		},
		{
			"notify.plan.e1", `{"event_id":"e1","recipients":2,"entries":[` + person + `]}`, `"e1" "CUSTOMER" "he" "Asia/Jerusalem"`,
			"[addresses endpoints recipients user_id]",
		},
		{
			"tasks.other", `{"Owner-ID":"private","userId":"private","Cookie":"private","db_password":"private","phone_number":"private","title":"x"}`,
			`"x"`, "[Cookie Owner-ID db_password phone_number userId]",
		},
	} {
		text, hidden := hiding(t, c.subject, c.message)
		for _, secret := range []string{"private", "972501234567"} {
			check.That(t, !strings.Contains(text, secret), "%s shows %s", c.subject, text)
		}
		for want := range strings.SplitSeq(c.shown, `" "`) {
			check.Contains(t, text, strings.Trim(want, `"`))
		}
		check.Equal(t, fmt.Sprint(hidden), c.hidden, "hidden of "+c.subject)
	}
	text, hidden := hiding(t, "events.x", `[null,{"user_id":null}]`)
	check.Equal(t, text+fmt.Sprint(hidden), `[null,{"user_id":null}][]`, "nothing to hide")
}

// In each message that readers accept, personal members are hidden, and the ids of the message stay.
func TestConcealSamples(t *testing.T) {
	t.Parallel()
	for kind, subject := range map[string]string{
		"enrich-job": "jobs.enrich.x.y", "event": "events.x.y", "import-job": "jobs.import.x.y", "notification": "notify.send.a.b.c.d",
	} {
		files := check.Must(filepath.Glob("../../pkg/contracts/testdata/" + kind + "/v1/*.json"))(t)
		check.Require(t, len(files) > 0, "no samples of %s", kind)
		for _, file := range files {
			data := check.Must(os.ReadFile(file))(t)
			text, _ := hiding(t, subject, string(data))
			var whole struct {
				Owner string `json:"owner_id"`
				User  string `json:"user_id"`
			}
			check.OK(t, json.Unmarshal(data, &whole))
			for _, name := range []string{whole.Owner, whole.User} {
				check.That(t, name == "" || !strings.Contains(text, fmt.Sprintf("%q", name)), "%s shows its user: %s", file, text)
			}
			check.That(t, !strings.Contains(text, "@"), "%s shows an address: %s", file, text)
		}
	}
}
