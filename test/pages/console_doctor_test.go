package pages_test

import (
	"context"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/test/internal/browser"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestDoctorForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t, func(c *console.Config) {
		c.Doctor = func(context.Context) ([]console.Finding, error) {
			return []console.Finding{
				{Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is 1h, want 720h", Cure: "expediter apply " + strings.Repeat("x", 80)},
				{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "a round trip takes 300ms", Cure: "# move closer"},
				{Severity: console.Skipped, Problem: "servers: the user may not ask them"},
			}, nil
		}
	})
	looks(t, b, s, "doctor", "/doctor")
	looks(t, b, s, "doctor-findings", "/doctor?run=1")
}
