// Package alerts tests the rules, runbooks and dashboards for Prometheus.
package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
	data := check.Must(os.ReadFile(path))(t)
	return string(data)
}

// Each alert has a section of the runbooks and a test, and each section an alert. Their metrics are documented.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	tests, sections, alerts := "", map[string]bool{}, map[string]bool{}
	for _, path := range tested(t) {
		tests += read(t, path)
	}
	for _, found := range section.FindAllStringSubmatch(read(t, "../../docs/runbooks.md"), -1) {
		sections[found[1]] = true
	}
	for _, found := range rule.FindAllStringSubmatch(read(t, rules), -1) {
		name, body := found[1], found[2]
		alerts[name] = true
		for _, part := range []string{"/docs/runbooks.md#" + strings.ToLower(name) + "\n", "severity: ", "summary: "} {
			check.Equal(t, strings.Count(body, part), 1, name+" has "+part)
		}
		check.Equal(t, strings.Count(tests, "- name: "+name+"\n"), 1, "tests of "+name)
		testbed.Queries(t, expr.FindStringSubmatch(body)[1])
	}
	check.Equal(t, sections, alerts)
	check.That(t, len(alerts) >= 20, "%d alerts are too few to be all", len(alerts))
}

// tested returns the files with the tests of the rules.
func tested(t *testing.T) []string {
	t.Helper()
	paths := check.Must(filepath.Glob("../../deploy/prometheus/rules*_test.yaml"))(t)
	check.Equal(t, len(paths), 2, "files with tests of the rules")
	return paths
}

// promtool runs the program.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testbed.Promtool.Find(t)[0], args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // its heap is small
	out, err := cmd.CombinedOutput()
	check.That(t, err == nil, "promtool %v: %v\n%s", args, err, out)
}

// Each alert fires at its fault, and not for healthy services.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "../../deploy/prometheus/prometheus.yaml")
	promtool(t, append([]string{"test", "rules"}, tested(t)...)...)
}

// dashboard is a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		Description string `json:"description"`
		FieldConfig struct {
			Defaults struct {
				Unit string `json:"unit"`
			} `json:"defaults"`
		} `json:"fieldConfig"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
		Title string `json:"title"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Query any `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// Each query of a dashboard is one that Prometheus takes, of metrics that are documented. Each panel has a description and a unit.
func TestDashboardsAsk(t *testing.T) {
	t.Parallel()
	paths := check.Must(filepath.Glob("../../deploy/grafana/*.json"))(t)
	check.Equal(t, len(paths), 3, "dashboards")
	recorded := "groups: [{name: dashboards, rules: [\n"
	for _, path := range paths {
		var d dashboard
		check.OK(t, json.Unmarshal([]byte(read(t, path)), &d))
		for _, v := range d.Templating.List {
			if query, ok := v.Query.(string); ok && strings.HasPrefix(query, "label_values") {
				testbed.Queries(t, query)
			}
		}
		for _, p := range d.Panels {
			check.That(t, p.Description != "" && p.FieldConfig.Defaults.Unit != "" && len(p.Targets) != 0,
				"%s: panel %q has no description, unit or query", path, p.Title)
			for _, target := range p.Targets {
				query := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
				testbed.Queries(t, query)
				recorded += fmt.Sprintf("{record: r%d, expr: %q},\n", len(recorded), query)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(file, []byte(recorded+"]}]\n"), 0o600))
	promtool(t, "check", "rules", file)
}
