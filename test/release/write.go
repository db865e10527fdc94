package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/test/internal/modules"
)

const (
	changelog  = "CHANGELOG.md"
	unreleased = "## Unreleased\n"
)

// changelog returns the changelog with what was unreleased under the heading of the release.
func (r *release) changelog() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.work, changelog))
	if err != nil {
		return "", err //nolint:wrapcheck // names the file
	}
	before, after, found := strings.Cut(string(text), unreleased)
	section, _, _ := strings.Cut(after, "\n## ")
	if !found || !strings.Contains(section, "\n- ") {
		return "", errors.New(changelog + ` has nothing under "Unreleased": what does the release change?`)
	}
	return before + unreleased + "\n## " + r.version + " - " + r.now.Format("2006-01-02") + "\n" + after, nil
}

// write prints the release, and makes it when it is told to: the files, the commit, a tag for each module.
func (r *release) write(ctx context.Context, tree *modules.Tree, changes map[string]string, yes bool) error {
	names := slices.Sorted(maps.Keys(changes))
	r.say.Printf("files of the commit:\n\t%s\ntags:\n", strings.Join(names, "\n\t"))
	var tags []string
	for _, m := range tree.Modules {
		if m.Released {
			tags = append(tags, m.Tag(r.version))
			r.say.Printf("\t%s\n", m.Tag(r.version))
		}
	}
	if !yes {
		r.say.Printf("Nothing was done. --yes does it.\n")
		return nil
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(r.work, name), []byte(changes[name]), 0o644); err != nil { //nolint:gosec // as Git makes it
			return err //nolint:wrapcheck // names the file
		}
	}
	commands := [][]string{append([]string{"add", "--"}, names...), {"commit", "--quiet", "-m", "Release " + r.version}}
	for _, tag := range tags {
		commands = append(commands, []string{"tag", "-a", "-m", tag, tag})
	}
	for _, args := range commands {
		if _, err := modules.Output(ctx, r.work, "git", args...); err != nil {
			return fmt.Errorf("the release is half made; git tag -d the tags that there are, and git reset --hard to the commit before: %w", err)
		}
	}
	r.say.Printf("Committed and tagged. To publish it:\n\tgit push --atomic origin HEAD %s\n", strings.Join(tags, " "))
	return nil
}
