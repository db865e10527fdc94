// Modules looks after the go.mod, go.sum and go.work files of the repository. Its modules require each other at released versions,
// and here at a version that may not be released yet: a proxy of the present work tree stands for the one that has it.
//
//	go run ./test/modules tidy      bring the files into order, after a requirement was added or raised
//	go run ./test/modules diff      fail, and show what tidy would change
//	go run ./test/modules alone     fail if a module cannot be used as those see it that require it: without go.work
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

	"github.com/expediter-io/expediter/test/internal/modules"
)

func main() { modules.Main(run) }

func run(ctx context.Context, work string, args []string, out io.Writer) (err error) {
	if len(args) != 1 || !slices.Contains([]string{"tidy", "diff", "alone"}, args[0]) {
		return errors.New("usage: go run ./test/modules tidy|diff|alone")
	}
	tree, proxy, remove, err := modules.Scratch(ctx, work)
	if err != nil {
		return err
	}
	say := &modules.Printer{W: out}
	defer func() { err = errors.Join(err, say.Err, remove()) }()
	if args[0] == "alone" {
		return alone(ctx, work, tree, proxy, say)
	}
	if err := tree.Tidy(ctx, proxy); err != nil {
		return err
	}
	changes, err := tree.Changes(work, false)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		say.Printf("%s\n", name)
		if args[0] == "tidy" {
			if err := os.WriteFile(filepath.Join(work, name), []byte(changes[name]), 0o644); err != nil { //nolint:gosec // as Git makes it
				return err //nolint:wrapcheck // names the file
			}
			continue
		}
		// git reports a difference as an error, and prints it.
		diff, _ := modules.Output(ctx, work, "git", "diff", "--no-index", name, filepath.Join(tree.Root, name)) //nolint:errcheck // see above
		say.Printf("%s", diff)
	}
	if len(changes) > 0 && args[0] == "diff" {
		return errors.New("go.mod, go.sum or go.work files are not as they should be: tools/tidy")
	}
	return nil
}

// alone checks each module without go.work. A module that then has the same packages, with the same files and the same versions of other
// modules, is as in the workspace, which other steps vet and build. Any other module is vetted, which type-checks each package with its
// tests.
func alone(ctx context.Context, work string, tree *modules.Tree, proxy *modules.Proxy, say *modules.Printer) error {
	if err := tree.Stage(ctx, proxy); err != nil {
		return err
	}
	known, err := modules.Packages(ctx, nil, work, "work")
	if err != nil {
		return err
	}
	var failed []string
	for _, m := range tree.Modules {
		if m.Dir == "tools" || m.Dir == "tools/install" { // one has no packages, the other has the modules of Kubernetes
			continue
		}
		dir := filepath.Join(tree.Root, m.Dir)
		packages, err := modules.Packages(ctx, proxy, dir, "./...")
		other := slices.IndexFunc(packages, func(p string) bool { return !slices.Contains(known, p) })
		if err == nil && other >= 0 {
			say.Printf("-- %s: vetted, it has %s\n", m.Dir, packages[other])
			_, err = proxy.Go(ctx, dir, "vet", "./...")
		}
		if err != nil {
			say.Printf("-- %s\n%v\n", m.Dir, err)
			failed = append(failed, m.Dir)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("these modules fail alone: %s", strings.Join(failed, ", "))
	}
	return nil
}
