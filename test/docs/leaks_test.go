package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var (
	aTest   = regexp.MustCompile(`(?m)^func (Test|Fuzz)[A-Z]`)
	checker = regexp.MustCompile(`(crash\.Main|goleak\.Find|goleak\.VerifyTestMain|natstest\.LeakChecked|natstest\.Main)\b`)
)

// The TestMain of each package with tests checks for leaked goroutines. First programs are shown as users write them, without.
func TestEveryPackageChecksForLeaks(t *testing.T) {
	t.Parallel()
	tested, checked := map[string]bool{}, map[string]bool{}
	for path, text := range files(t, "_test.go") {
		if strings.Contains(path, "/testdata/") {
			continue
		}
		dir := filepath.Dir(path)
		tested[dir] = tested[dir] || aTest.MatchString(text)
		checked[dir] = checked[dir] || strings.Contains(text, "func TestMain(") && checker.MatchString(text)
	}
	for dir := range tested {
		check.That(t, !tested[dir] || checked[dir] || dir == "deploy/nats", "%s: no TestMain checks for leaked goroutines", dir)
	}
	check.That(t, len(tested) >= 100, "%d packages with tests are too few to be all", len(tested))
}
