// Release makes a release: it writes the version into every go.mod and go.work file, the sums of the repository's own modules into
// the go.sum files, and the heading into CHANGELOG.md, commits that, and tags each module. It does so here, and prints the command
// that pushes it. Without --yes it only prints the steps.
//
//	go run ./test/release v0.2.0 [--yes]
//	go run ./test/release --api             only the changes that break the exported API since the last release
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/expediter-io/expediter/test/internal/modules"
)

func main() { modules.Main(run) }

func run(ctx context.Context, work string, args []string, out io.Writer) error {
	tool, err := modules.Output(ctx, work, "tools/bin", "golang.org/x/exp/cmd/gorelease")
	if err != nil {
		return err
	}
	r := release{now: time.Now(), say: &modules.Printer{W: out}, tool: strings.TrimSpace(tool), work: work}
	api := slices.Contains(args, "--api") || slices.Contains(args, "-api")
	yes := len(args) > 1 && (args[len(args)-1] == "--yes" || args[len(args)-1] == "-yes")
	switch {
	case api && len(args) == 1:
		return r.api(ctx)
	case !api && (len(args) == 1 || len(args) == 2 && yes):
		r.version = args[0]
		return r.make(ctx, yes)
	}
	return errors.New("usage: ./run release vX.Y.Z [--yes]")
}

// release is a release that is being made.
type release struct {
	now     time.Time
	say     *modules.Printer
	tool    string // gorelease
	version string
	work    string
}

// make prints the release, and makes it if yes is true.
func (r *release) make(ctx context.Context, yes bool) (err error) {
	tags, err := readTags(ctx, r.work)
	if err != nil {
		return err
	}
	if err := r.check(ctx, tags); err != nil {
		return err
	}
	tree, proxy, remove, err := modules.Scratch(ctx, r.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.say.Err, remove()) }()
	if err := tree.SetVersion(r.version); err != nil {
		return err
	}
	if err := tree.Stage(ctx, proxy); err != nil {
		return err
	}
	if err := r.compare(ctx, tree, proxy, tags.last); err != nil {
		return err
	}
	changes, err := tree.Changes(r.work, true)
	if err != nil {
		return err
	}
	if changes[changelog], err = r.changelog(); err != nil {
		return err
	}
	return r.write(ctx, tree, changes, yes)
}

// check returns an error for all that stands against the release.
func (r *release) check(ctx context.Context, tags tags) error {
	var errs []error
	if semver.Canonical(r.version) != r.version || semver.Prerelease(r.version) != "" {
		return fmt.Errorf("%q is no version: want vX.Y.Z", r.version)
	}
	if semver.Compare(r.version, "v2.0.0") >= 0 {
		errs = append(errs, fmt.Errorf("from v2 on a version is part of a module's path: %s needs other paths first", r.version))
	}
	for _, tag := range tags.of[r.version] {
		errs = append(errs, fmt.Errorf("the tag %s exists", tag))
	}
	if semver.Compare(r.version, tags.last) <= 0 {
		errs = append(errs, fmt.Errorf("%s is not greater than the last release, %s", r.version, tags.last))
	}
	dirty, err := modules.Output(ctx, r.work, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if dirty != "" {
		errs = append(errs, fmt.Errorf("the work tree has changes that are not committed:\n%s", strings.TrimRight(dirty, "\n")))
	}
	_, err = r.changelog()
	return errors.Join(append(errs, err)...)
}

// tags are the tags of releases.
type tags struct {
	last string              // the greatest version, "" before the first release
	of   map[string][]string // by version
}

func readTags(ctx context.Context, work string) (tags, error) {
	text, err := modules.Output(ctx, work, "git", "tag", "--list")
	found := tags{of: map[string][]string{}}
	for tag := range strings.Lines(text) {
		tag = strings.TrimSpace(tag)
		version := tag[strings.LastIndex(tag, "/")+1:]
		if version == tag || !semver.IsValid(version) {
			continue
		}
		found.of[version] = append(found.of[version], tag)
		if semver.Compare(version, found.last) > 0 {
			found.last = version
		}
	}
	return found, err
}

const (
	changelog  = "CHANGELOG.md"
	unreleased = "## Unreleased\n"
)

// changelog returns the changelog with the unreleased entries under the heading of the release.
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

// write prints the release, and makes it if told to: the files, the commit, a tag for each module.
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
