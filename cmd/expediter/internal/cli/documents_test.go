package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// invocation is a command line in a document: up to what ends it for a shell, or for the text around it.
var invocation = regexp.MustCompile("(?:go run \\./cmd/expediter|\\./expediter|`expediter) +([a-z][^|`&;>\\n]*)")

// Every command and flag that a document shows exists.
func TestCommandLinesOfDocuments(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range append(pages, "../../../../README.md", "../../../../deploy/nats/README.md", "../../../../bench/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range invocation.FindAllStringSubmatch(string(text), -1) {
			shown++
			if err := checkCommandLine(strings.Fields(found[1])); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), found[0], err)
			}
		}
	}
	if shown < 25 {
		t.Errorf("%d command lines are too few to be all", shown)
	}
}

// checkCommandLine reports a command or a flag of a command line that does not exist.
func checkCommandLine(words []string) error {
	words[0] = strings.TrimRight(words[0], ".,:")
	root := newRoot(Config{})
	cmd, rest, err := root.Find(words)
	switch {
	case err != nil:
		return fmt.Errorf("no such command: %w", err)
	case cmd == root:
		return fmt.Errorf("no such command: %q", words[0])
	}
	for _, word := range rest {
		if word == "--" {
			return nil // the rest is another command's
		}
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, ".,:)"), "=")
		if isFlag && cmd.Flag(name) == nil && name != "help" {
			return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}
