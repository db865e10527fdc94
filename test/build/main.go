// Build makes the files of a release for its users: the programs for each platform in archives, container images, SBOMs, and the
// sums of all these files. It installs the programs from the modules of a version, as `go install` does for everybody, so each file
// is the same wherever it is made with the same version of Go.
//
//	go run ./test/build v0.2.0     of the tags of a version
//	go run ./test/build -tree      of the work tree, as a release of it would be
//	go run ./test/build -twice ... twice, in different folders, and fails when a file differs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/test/internal/modules"
)

// programs are the programs to build, by the folders of their modules.
var programs = map[string]string{
	"cmd/expediter":     "cmd/expediter",
	"services/enricher": "services/enricher/cmd/enricher",
	"services/importer": "services/importer/cmd/importer",
	"services/notifier": "services/notifier/cmd/notifier",
}

const all = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() { modules.Main(run) }

func run(ctx context.Context, work string, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	dir := flags.String("out", "", "the folder of the files, dist/VERSION in the work tree by default")
	platforms := flags.String("platforms", all, "the platforms to build for")
	ofTree := flags.Bool("tree", false, "build the work tree instead of the tags of a version")
	twice := flags.Bool("twice", false, "build twice and compare")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // says what is wrong
	}
	if (flags.NArg() == 1) == *ofTree || flags.NArg() > 1 {
		return errors.New("usage: ./run build [-out DIR] [-platforms LIST] [-twice] vX.Y.Z, or -tree instead of the version")
	}
	tree, shared, remove, err := modules.Scratch(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	temp, commit := filepath.Dir(tree.Root), "HEAD"
	if *ofTree {
		err = tree.Stage(ctx, shared)
	} else {
		commit = "refs/tags/cmd/expediter/" + flags.Arg(0)
		tree, err = modules.PutTags(ctx, work, flags.Arg(0), shared)
	}
	if err != nil {
		return err
	}
	b := build{platforms: strings.Split(*platforms, ","), root: tree.Root, version: tree.Version, work: work}
	if b.revision, b.time, err = ofCommit(ctx, work, commit); err != nil {
		return err
	}
	if *dir == "" {
		*dir = filepath.Join(work, "dist", tree.Version)
	}
	dirs := []string{*dir}
	if *twice {
		dirs = append(dirs, filepath.Join(temp, "again"))
	}
	var sums []string
	for i, dir := range dirs {
		proxy, err := modules.NewProxy(ctx, shared.Dir, filepath.Join(temp, "modules", strconv.Itoa(i)), true)
		if err != nil {
			return err
		}
		b.proxy, b.dir, b.temp = proxy, dir, filepath.Join(temp, "built", strconv.Itoa(i))
		text, err := b.make(ctx)
		if err != nil {
			return err
		}
		sums = append(sums, text)
	}
	if different := differing(sums); different != "" {
		return fmt.Errorf("built twice, these files differ:\n%s", different)
	}
	_, err = fmt.Fprintf(out, "%s\n%s", *dir, sums[0])
	return err //nolint:wrapcheck // the standard output is gone
}

// ofCommit returns the hash of a commit and its time.
func ofCommit(ctx context.Context, work, commit string) (revision string, at time.Time, err error) {
	out, err := modules.Output(ctx, work, "git", "log", "-1", "--format=%H %ct", commit)
	if err != nil {
		return "", time.Time{}, err
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(out), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("the time of %s: %w", commit, err)
	}
	return revision, time.Unix(unix, 0).UTC(), nil
}

// differing returns the lines that are not in all texts.
func differing(texts []string) string {
	var different strings.Builder
	for i, text := range texts {
		other := strings.Split(texts[len(texts)-1-i], "\n")
		for line := range strings.Lines(text) {
			if !slices.Contains(other, strings.TrimSuffix(line, "\n")) {
				different.WriteString(line)
			}
		}
	}
	return different.String()
}
