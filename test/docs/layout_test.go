package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// blankReturn is a return after a blank line that no comment precedes.
var blankReturn = regexp.MustCompile(`(?m)^\t+[^/\s].*\n\n\t+return\b.*$`)

// All modules have one layout, and the linters have no rule for this part of it: no blank line stands before a return.
func TestReturnsFollowTheirStatements(t *testing.T) {
	t.Parallel()
	returns := 0
	for path, text := range files(t, ".go") {
		returns += strings.Count(text, "\treturn")
		for _, found := range blankReturn.FindAllStringIndex(text, -1) {
			line := 2 + strings.Count(text[:found[1]], "\n") - 1
			t.Errorf("%s:%d: a blank line stands before the return", path, line)
		}
	}
	check.That(t, returns >= 10000, "%d returns are too few to be all", returns)
}
