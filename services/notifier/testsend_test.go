package notifier

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A test message comes at once, says that it is one, and is nobody's: no row, no link to switch anything off.
func TestATestMessage(t *testing.T) {
	t.Parallel()
	box := newLetterbox(t)
	folder := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(folder, "X"), 0o700))
	for part, text := range map[string]string{"subject": "hello {{.Payload.n}}", "txt": "{{.DateTime .Payload.at}} ({{.Unsubscribe}})"} {
		check.OK(t, os.WriteFile(filepath.Join(folder, "X", "default."+part), []byte(text), 0o600))
	}
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{}, listening, func(c *Config) {
		c.Rules = writeRules(t, mailRules)
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "n@example.com", EmailSecurity: "plain", EmailServer: box.address, LinkSecrets: []string{strings.Repeat("x", 32)},
			PublicURL: "https://n.example", Templates: folder,
		}
	})
	w := newWeb(t, n)
	const path = "/v1/templates/test"
	status, body := w.call(http.MethodPost, path, `{"template":"X","channel":"email","to":"ada@example.org","time_zone":"Europe/Rome","locale":"it",
		"payload":{"n":5,"at":"2026-11-25T22:05:00Z"}}`)
	var sent TestSent
	check.OK(t, json.Unmarshal([]byte(body), &sent))
	check.Require(t, status == http.StatusOK && sent.Problem == "" && strings.HasPrefix(sent.ID, "test_"), "%d %s", status, body)
	m := <-box.mails
	text, err := io.ReadAll(m.Body)
	check.OK(t, err)
	check.Same(t, "subject", m.Header.Get("Subject"), "[test] hello 5")
	check.Same(t, "text", strings.TrimSpace(string(text)), "25/11/2026 23:05 ()")
	check.Same(t, "link", m.Header.Get("List-Unsubscribe"), "")

	status, body = w.call(http.MethodPost, path, `{"template":"Y","channel":"email","to":"ada@example.org"}`)
	check.That(t, status == http.StatusOK, "%d", status)
	check.Says(t, body, `"problem":"email: misconfigured: no text`)
	status, body = w.call(http.MethodPost, path, `{"channel":"inapp"}`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Says(t, body, "/template", "/to", "/channel")
	status, _ = w.call(http.MethodPost, path, `[]`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Same(t, "rows", len(p.rows())+len(p.deliveries()), 0)
}
