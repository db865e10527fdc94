package cli

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// runTemplates runs a command about templates on those of the example.
func runTemplates(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var stderr bytes.Buffer
	code = Run(t.Context(), Config{Stderr: &stderr}, append([]string{"templates"}, args...))
	return code, stderr.String()
}

const exampleData = "../../../../examples/templates.json"

func TestTemplatesPreview(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, said := runTemplates(t, "preview", "../../../../examples/templates", "--data", exampleData, "--out", folder)
	check.Same(t, "exit code", code, 0)
	check.Says(t, said, filepath.Join(folder, "index.html")+" shows all texts.")
	code, said = runTemplates(t, "preview", "../../../../examples/templates", "--out", folder)
	check.Same(t, "exit code without data", code, 1)
	check.Says(t, said, "RESERVATION_REQUESTED he sms: ", "error: 9 texts: cannot be made")
	code, said = runTemplates(t, "preview", "testdata", "--out", folder)
	check.Same(t, "exit code with mistakes", code, 1)
	check.Says(t, said, "testdata/script/", "mistakes: a notifier would not take this into force")
}

func TestTemplatesSend(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, _ := natstest.Connect(t, srv)
	asked := make(chan string, 2)
	answers := make(chan string, 2)
	answers <- `{"id":"test_1","provider_id":"x"}`
	answers <- `{"id":"test_2","problem":"email: bounced (550)"}`
	check.OK(t, check.Err(nc.Subscribe("notifier.v1.templates.test", func(msg *nats.Msg) {
		asked <- string(msg.Data)
		check.OK(t, msg.Respond([]byte(<-answers)))
	})))
	check.OK(t, nc.Flush())
	args := []string{"send", "reservations.digest", "--to", "a@example.com", "--locale", "he", "--server", srv.URL(), "--data", exampleData}
	code, said := runTemplates(t, args...)
	check.Same(t, "exit code", code, 0)
	check.Says(t, said, "test_1 is sent.")
	check.Says(t, <-asked, `"channel":"email","locale":"he","payload":{"count":`, `"template":"reservations.digest","to":"a@example.com"`)
	code, said = runTemplates(t, args...)
	check.Same(t, "exit code of a refusal", code, 1)
	check.Says(t, said, "email: bounced (550): the test message was not sent")
	code, said = runTemplates(t, "send", "x")
	check.Same(t, "exit code without an address", code, 2)
	check.Says(t, said, "--to is required")
}
