package docs

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// unchecked are the packages whose tests do not check for leaked goroutines, each with the reason.
var unchecked = map[string]string{
	"deploy/nats": "its module requires no other, and no test starts a goroutine",
}

// checkers fail the tests of a package after a goroutine that outlives them.
var checkers = []string{"crash.Main", "goleak.Find", "goleak.VerifyTestMain", "natstest.LeakChecked", "natstest.Main"}

// Each package with tests has a TestMain that checks for leaked goroutines. First programs are shown as users write them, without.
func TestEveryPackageChecksForLeaks(t *testing.T) {
	t.Parallel()
	tested, checked := map[string]bool{}, map[string]bool{}
	for path, text := range files(t, "_test.go") {
		if strings.Contains(path, "/testdata/") {
			continue
		}
		_, file := parse(t, path, text)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			switch dir := filepath.Dir(path); {
			case !ok || function.Recv != nil:
			case function.Name.Name == "TestMain":
				checked[dir] = checked[dir] || checksForLeaks(function)
			case strings.HasPrefix(function.Name.Name, "Test") || strings.HasPrefix(function.Name.Name, "Fuzz"):
				tested[dir] = true
			}
		}
	}
	for dir := range tested {
		if reason := unchecked[dir]; checked[dir] == (reason != "") {
			t.Errorf("%s: the tests check for leaked goroutines: %t. The reason that they do not: %q", dir, checked[dir], reason)
		}
	}
	for dir := range unchecked {
		check.That(t, tested[dir], "%s has no tests, and needs no reason", dir)
	}
	check.That(t, len(tested) >= 150, "%d packages with tests are too few to be all", len(tested))
}

// checksForLeaks reports whether a function uses one of checkers.
func checksForLeaks(function *ast.FuncDecl) bool {
	found := false
	ast.Inspect(function.Body, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok {
				found = found || slices.Contains(checkers, x.Name+"."+selector.Sel.Name)
			}
		}
		return !found
	})
	return found
}
