// Release makes a release: it writes the version into every go.mod and go.work file, the sums of the repository's own modules into
// the go.sum files, and the heading into CHANGELOG.md, commits that, and tags each module. It does so here, and prints the command
// that pushes it. Without --yes it only says what it would do.
//
//	go run ./test/release v0.2.0 [--yes]
//	go run ./test/release --api             only what breaks the exported API since the last release
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/expediter-io/expediter/test/internal/modules"
)

func main() { modules.Main(run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	work, err := modules.WorkTree(ctx)
	if err != nil {
		return err
	}
	tool, err := modules.Output(ctx, work, "env", "GOWORK=off", "go", "-C", "tools", "tool", "-n", "gorelease")
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

// release is one that is made.
type release struct {
	now     time.Time
	say     *modules.Printer
	tool    string // gorelease
	version string
	work    string
}

// make prints the release, and makes it when it is told to.
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

// check reports everything that stands against the release.
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

// tags are those of releases.
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
