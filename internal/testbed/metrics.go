package testbed

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// foreign matches the names of metrics that the exporter adds: those of the process, of Go's runtime and of the exporter itself.
var foreign = regexp.MustCompile(`^(go|process|promhttp)_|^target_info$`)

var (
	kinds   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	samples = regexp.MustCompile(`(?m)^([a-zA-Z_:]\w*)\{([^}]*)\} `)
	label   = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	row     = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*)\\|")

	quoted   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	word     = regexp.MustCompile(`\b[a-zA-Z_]\w*`)
)

// promQL has the words in queries that are neither our metrics nor our labels.
var promQL = strings.Fields(`and by count histogram_quantile increase label_values max min min_over_time offset on or rate sum time unless
	up vector instance job le`)

// metric is the kind and the labels of a metric.
type metric struct {
	kind   string
	labels map[string]bool
}

// Metrics checks, for the metrics that are selected by name, that pages of /metrics and the tables of docs/metrics.md have the same
// metrics with the same kinds, and that the pages have no further labels.
func Metrics(t testing.TB, pages string, selected func(name string) bool) {
	t.Helper()
	doc := metricsIn(t)
	shown := map[string]metric{}
	for _, found := range kinds.FindAllStringSubmatch(pages, -1) {
		if name := found[1]; !foreign.MatchString(name) && selected(name) {
			shown[name] = metric{kind: found[2], labels: map[string]bool{}}
		}
	}
	for _, found := range samples.FindAllStringSubmatch(pages, -1) {
		name := found[1]
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, end); ok && shown[base].kind == "histogram" {
				name = base
			}
		}
		for _, l := range label.FindAllStringSubmatch(found[2], -1) {
			if shown[name].kind != "" && l[1] != "le" {
				shown[name].labels[l[1]] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		want, ok := doc[name]
		switch {
		case !ok:
			t.Errorf("%s (%s, %v) is not in docs/metrics.md", name, shown[name].kind, slices.Sorted(maps.Keys(shown[name].labels)))
		case want.kind != shown[name].kind:
			t.Errorf("%s is a %s, and docs/metrics.md says %s", name, shown[name].kind, want.kind)
		}
		for l := range shown[name].labels {
			check.That(t, !ok || want.labels[l], "%s has the label %s, which docs/metrics.md does not name", name, l)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		_, ok := shown[name]
		check.That(t, ok || !selected(name), "docs/metrics.md has %s, and nothing shows it", name)
	}
}

// Queries checks that docs/metrics.md has each metric and each label of queries in PromQL.
func Queries(t testing.TB, queries ...string) {
	t.Helper()
	doc := metricsIn(t)
	known := map[string]bool{}
	for _, w := range promQL {
		known[w] = true
	}
	for name, m := range maps.Clone(doc) {
		for l := range m.labels {
			known[l] = true
		}
		known[name] = true
		for _, end := range []string{"_bucket", "_count", "_sum"} {
			known[name+end] = m.kind == "histogram"
			doc[name+end] = m
		}
	}
	for _, query := range queries {
		query = quoted.ReplaceAllString(query, "")
		for _, w := range word.FindAllString(query, -1) {
			check.That(t, known[w], "%s: docs/metrics.md has no metric and no label %s", query, w)
		}
		for _, found := range selector.FindAllStringSubmatch(query, -1) {
			for _, l := range word.FindAllString(found[2], -1) {
				check.That(t, doc[found[1]].labels[l] || slices.Contains(promQL, l), "%s: docs/metrics.md gives %s no label %s", query, found[1], l)
			}
		}
	}
}

// metricsIn reads docs/metrics.md.
func metricsIn(t testing.TB) map[string]metric {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.work")); found == nil {
			break
		}
		check.Require(t, dir != filepath.Dir(dir), "no go.work in the folders above")
		dir = filepath.Dir(dir)
	}
	data, err := os.ReadFile(filepath.Join(dir, "docs", "metrics.md"))
	check.OK(t, err)
	all := map[string]metric{}
	for _, found := range row.FindAllStringSubmatch(string(data), -1) {
		m := metric{kind: found[2], labels: map[string]bool{}}
		for l := range strings.FieldsFuncSeq(found[3], func(r rune) bool { return r == ',' || r == ' ' || r == '`' }) {
			m.labels[l] = true
		}
		all[found[1]] = m
	}
	return all
}
