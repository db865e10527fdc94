// Package alerts tests the rules, runbooks and dashboards for Prometheus.
package alerts

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/documented"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = "../../deploy/prometheus/rules.yaml"

var (
	rule    = regexp.MustCompile(`(?m)^      - alert: (\w+)\n((?:        .*\n)+)`)
	expr    = regexp.MustCompile(`(?m)^        expr: (.*\n(?:          .*\n)*)`)
	section = regexp.MustCompile(`(?m)^## (\w+)$`)
)

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path) //nolint:gosec // of the repository
	check.OK(t, err)
	return string(data)
}

// Each alert has a section of the runbooks and a test, and each section an alert. Their metrics are documented.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	tests, sections, alerts := read(t, "../../deploy/prometheus/rules_test.yaml"), map[string]bool{}, map[string]bool{}
	for _, found := range section.FindAllStringSubmatch(read(t, "../../docs/runbooks.md"), -1) {
		sections[found[1]] = true
	}
	for _, found := range rule.FindAllStringSubmatch(read(t, rules), -1) {
		name, body := found[1], found[2]
		alerts[name] = true
		for _, part := range []string{"/docs/runbooks.md#" + strings.ToLower(name) + "\n", "severity: ", "summary: "} {
			check.Same(t, name+" has "+part, strings.Count(body, part), 1)
		}
		check.Same(t, "tests of "+name, strings.Count(tests, "- name: "+name+"\n"), 1)
		documented.Queries(t, expr.FindStringSubmatch(body)[1])
	}
	check.Equal(t, alerts, sections)
	if len(alerts) < 20 {
		t.Errorf("%d alerts are too few to be all", len(alerts))
	}
}

// promtool runs the program.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), installed.Prometheus.Find(t)[1], args...).CombinedOutput() //nolint:gosec // as found
	if err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// Each alert fires at its fault, and not for healthy services.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "../../deploy/prometheus/prometheus.yaml")
	promtool(t, "test", "rules", "../../deploy/prometheus/rules_test.yaml")
}
