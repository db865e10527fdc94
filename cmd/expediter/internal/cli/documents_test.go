package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// invocation is a command line in a document: up to what ends it for a shell, or for the text around it.
var invocation = regexp.MustCompile("(go run \\./cmd/expediter|\\./expediter|`expediter) +([a-z][^|`&;>\\n]*)")

// Every command and flag that a document shows exists.
func TestCommandLinesOfDocuments(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../../docs/*.md")
	check.OK(t, err)
	shown := 0
	for _, page := range append(pages, "../../../../README.md", "../../../../deploy/nats/README.md", "../../../../bench/README.md") {
		text, err := os.ReadFile(page)
		check.OK(t, err)
		for _, found := range invocation.FindAllStringSubmatch(string(text), -1) {
			shown++
			line, _, _ := strings.Cut(found[2], " #")
			if err := checkCommandLine(strings.Fields(line), found[1][0] != '`'); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), found[0], err)
			}
		}
	}
	check.That(t, shown >= 25, "%d command lines are too few to be all", shown)
}

// checkCommandLine reports a command or a flag of a command line that does not exist, and arguments that are
// missing or too many in a whole one.
func checkCommandLine(words []string, whole bool) error {
	words[0] = strings.TrimRight(words[0], ".,:")
	root := newRoot(Config{Getenv: func(string) string { return "" }})
	cmd, rest, err := root.Find(words)
	switch {
	case err != nil:
		return fmt.Errorf("no such command: %w", err)
	case cmd == root:
		return fmt.Errorf("no such command: %q", words[0])
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil && whole {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return nil
}
