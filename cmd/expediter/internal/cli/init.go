package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// initial has the files of a new program. Those of Go have another ending, or they would be a part of this one.
//
//go:embed initial
var initial embed.FS

func newInit(g *globals) *cobra.Command {
	return action("init DIR", func(_ context.Context, args []string) error { return g.initialize(args[0]) })
}

// initialize writes the files of a new program, none of which may be there.
func (g *globals) initialize(dir string) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	name := filepath.Base(absolute)
	if strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(moduleRunes, r) }) {
		return g.usage(fmt.Errorf("init: the folder names the module: want lower-case letters, digits, \"-\" and \"_\", got %q", name))
	}
	files := map[string][]byte{"go.mod": fmt.Appendf(nil, "module %s\n\ngo 1.26\n", name)}
	err = fs.WalkDir(initial, "initial", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := initial.ReadFile(at)
		files[strings.TrimSuffix(path.Base(at), ".txt")] = data
		return err
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755) //nolint:gosec // a folder of source code
	}
	if err != nil {
		return err
	}
	for file := range files {
		if _, err := os.Lstat(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("init: %s is there already, and nothing was written: %w", filepath.Join(dir, file), errors.Join(fs.ErrExist, err))
		}
	}
	for file, data := range files {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil { //nolint:gosec // source code
			return err
		}
	}
	_, err = fmt.Fprintf(g.config.Stdout, `A program with a job is in %s. Next:

  cd %s
  go mod tidy
  go test .
  docker compose up -d     # or: expediter up
  go run .                 # and elsewhere: go run . send Ada
`, harmless(dir), harmless(dir))
	return err
}

const moduleRunes = "abcdefghijklmnopqrstuvwxyz0123456789-_"
