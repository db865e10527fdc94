package doctor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A server that answers nothing any more and a file that nobody writes end nothing but the checks that need them.
func TestItEndsWhateverHangs(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := natstest.NewProxy(t, srv)
	pipe := filepath.Join(t.TempDir(), "pipe")
	check.OK(t, syscall.Mkfifo(pipe, 0o600))
	report := doctor.Run(t.Context(), doctor.Config{
		Connect: func(more ...nats.Option) (*nats.Conn, error) {
			nc, err := nats.Connect("", append(more, p.Through())...)
			p.Partition()
			return nc, err
		},
		Environment: map[string]string{"ENRICHER_CATALOG": pipe, "IMPORTER_OPENAI_KEY_FILE": pipe, "NOTIFIER_EMAIL_SERVER": greeter(t, "")},
		Server:      nats.DefaultURL, Timeout: 3 * time.Second,
	})
	for _, id := range []string{"server.silent", "far.unreachable"} {
		check.That(t, slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.ID == id }),
			"it does not find %s: %+v", id, report.Findings)
	}
	check.That(t, slices.ContainsFunc(report.Skipped, func(s string) bool { return strings.HasPrefix(s, "environment: no end") }),
		"it does not say that it left a check behind: %v", report.Skipped)
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // when the check that is left behind has opened it
	check.OK(t, err)
	check.OK(t, os.Remove(pipe)) // which the check cannot open again
	check.OK(t, writer.Close())
}
