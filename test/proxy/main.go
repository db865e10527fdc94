// Proxy uses a release as a stranger does, before there is one: it puts the modules of the work tree into a folder proxy as a
// release would, and then, outside the repository and with an empty module cache, gets and builds every module that is released,
// installs the command, and runs the first programs that the documents show (testdata).
//
//	go run ./test/proxy               of the work tree
//	go run ./test/proxy -tags v0.1.0  of the tags of a version
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/expediter-io/expediter/test/internal/modules"
)

func main() { modules.Main(run) }

func run(ctx context.Context, work string, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	tags := flags.String("tags", "", "the version whose tags are taken, instead of the work tree")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // says what is wrong
	}
	tree, shared, remove, err := modules.Scratch(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if *tags == "" {
		err = tree.Stage(ctx, shared)
	} else {
		tree, err = modules.PutTags(ctx, work, *tags, shared)
	}
	if err != nil {
		return err
	}
	temp := filepath.Dir(tree.Root)
	proxy, err := modules.NewProxy(ctx, shared.Dir, filepath.Join(temp, "empty"), false)
	if err != nil {
		return err
	}
	proxy.Setenv("GOSUMDB=off") // the machine's module cache has checked the sums of others
	s := &stranger{say: &modules.Printer{W: out}, proxy: proxy, temp: temp, tree: tree}
	return errors.Join(s.modules(ctx), s.command(ctx), s.programs(ctx), s.tutorial(ctx, work), s.say.Err)
}

// stranger uses the modules from outside of the repository.
type stranger struct {
	say   *modules.Printer
	proxy *modules.Proxy
	temp  string
	tree  *modules.Tree
}

// modules gets all released modules and builds them.
func (s *stranger) modules(ctx context.Context) error {
	dir, err := s.module(ctx, "all")
	if err != nil {
		return err
	}
	get, build := []string{"get"}, []string{"build"}
	for _, m := range s.tree.Modules {
		if m.Released {
			get = append(get, m.Path()+"/...@"+s.tree.Version)
			build = append(build, m.Path()+"/...")
		}
	}
	for _, args := range [][]string{get, {"mod", "verify"}, build} {
		began := time.Now()
		if _, err := s.proxy.Go(ctx, dir, args...); err != nil {
			return err
		}
		s.say.Printf("go %s of %d modules at %s: %s\n", args[0], len(get)-1, s.tree.Version, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// module makes an empty module outside of the repository, and returns its folder.
func (s *stranger) module(ctx context.Context, name string) (dir string, err error) {
	dir = filepath.Join(s.temp, "outside", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a module: %w", err)
	}
	_, err = s.proxy.Go(ctx, dir, "mod", "init", "example.org/"+name)
	return dir, err
}

// command installs the command, and asks it for its version.
func (s *stranger) command(ctx context.Context) error {
	bin := filepath.Join(s.temp, "bin")
	s.proxy.Setenv("GOBIN=" + bin)
	if _, err := s.proxy.Go(ctx, s.temp, "install", modules.Prefix+"cmd/expediter@"+s.tree.Version); err != nil {
		return err
	}
	said, err := s.proxy.Run(ctx, s.temp, filepath.Join(bin, "expediter"), "version")
	if err != nil {
		return err
	}
	s.say.Printf("installed: %s", said)
	if !strings.HasPrefix(said, "expediter "+s.tree.Version+" ") {
		return fmt.Errorf("the command says that it is %q: want %s", said, s.tree.Version)
	}
	return nil
}

// programs runs the first programs, each in a module of its own.
func (s *stranger) programs(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(s.tree.Root, "test", "proxy", "testdata", "*", "*.go"))
	if err == nil && len(files) == 0 {
		err = errors.New("there are no first programs")
	}
	for _, file := range files {
		err = errors.Join(err, s.program(ctx, file))
	}
	return err
}

func (s *stranger) program(ctx context.Context, file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // of the repository
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	name := filepath.Base(filepath.Dir(file))
	began := time.Now()
	dir, err := s.module(ctx, name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil { //nolint:gosec // of a temporary folder
		return err //nolint:wrapcheck // names the file
	}
	if _, err := s.proxy.Go(ctx, dir, "mod", "tidy"); err != nil { // it finds the modules by the imports
		return err
	}
	run, want := []string{"run", "."}, comment(string(text))
	if strings.HasSuffix(file, "_test.go") {
		run, want = []string{"test", "."}, "ok "
	}
	said, err := s.proxy.Go(ctx, dir, run...)
	if err != nil {
		return err
	}
	took := time.Since(began).Round(time.Millisecond)
	s.say.Printf("%s: %s\n", name, took)
	if !strings.HasPrefix(said, want) {
		return fmt.Errorf("%s writes %q: want %q", name, said, want)
	}
	return nil
}

// tutorial runs the commands of the tutorial, with the installed command.
func (s *stranger) tutorial(ctx context.Context, work string) error {
	began := time.Now()
	environment := append(s.proxy.Env(), "PATH="+filepath.Join(s.temp, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	said, err := modules.Output(ctx, work, "go", "test", "-count=1", "-v", "-run", "^TestTutorial$", "./test/tutorial",
		"-args", "-environment", strings.Join(environment, "\n"))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	if strings.Contains(said, "--- SKIP") {
		s.say.Printf("tutorial: skipped, without Postgres\n")
		return nil
	}
	s.say.Printf("tutorial: %s\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// comment returns the output that the comment at the end of a program states.
func comment(program string) string {
	_, said, _ := strings.Cut(program, "\n// Output:")
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(said)) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//")))
	}
	return strings.Join(lines, "\n") + "\n"
}
