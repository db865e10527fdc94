// Package modules handles the modules of this repository as other modules see them: at one version, from a proxy.
package modules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Prefix is the beginning of the paths of all modules.
const Prefix = "github.com/expediter-io/expediter/"

// Module is a module of this repository.
type Module struct {
	Dir      string // below the root of the tree, with slashes; the rest of the path, and the prefix of its tags
	Released bool   // tests, tools, examples and measurements are not

	needs []string // folders of the modules that it requires
}

// Path returns the module's path.
func (m Module) Path() string { return Prefix + m.Dir }

// Tag returns the tag of a version of the module.
func (m Module) Tag(version string) string { return m.Dir + "/" + version }

// Tree is a work tree, or a copy of one.
type Tree struct {
	Root    string
	Modules []Module // each after those that it requires
	Version string   // the version at which they require each other: the last released one, or the first that will be
}

// Copy copies a work tree as Git would commit it.
func Copy(ctx context.Context, from, to string) error {
	out, err := Output(ctx, from, "git", "ls-files", "-coz", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(out, "\x00") {
		if name == "" {
			continue
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted
			return fmt.Errorf("copy the work tree: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from) //nolint:gosec // of the repository
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	defer src.Close() //nolint:errcheck // only read
	info, err := src.Stat()
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as Git makes it
		return err //nolint:wrapcheck // names the file
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm()) //nolint:gosec // of a temporary folder
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// Load reads the go.mod files of a tree.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata"):
			return fs.SkipDir
		case base != "go.mod" || entry.IsDir():
			return nil
		}
		return t.add(path.Dir(name))
	})
	if err != nil {
		return nil, fmt.Errorf("read the modules: %w", err)
	}
	err = t.order()
	return t, err
}

// add reads one go.mod file.
func (t *Tree) add(dir string) error {
	file, err := t.parse(dir)
	if err != nil {
		return err
	}
	m := Module{Dir: dir, Released: released(dir)}
	if file.Module.Mod.Path != m.Path() {
		return fmt.Errorf("%s/go.mod is of %s: want %s", dir, file.Module.Mod.Path, m.Path())
	}
	if len(file.Replace) > 0 && m.Released {
		return fmt.Errorf("%s/go.mod replaces %s: the go command installs no program of a module that replaces", dir, file.Replace[0].Old.Path)
	}
	for _, r := range file.Require {
		if needed, ours := strings.CutPrefix(r.Mod.Path, Prefix); ours {
			m.needs = append(m.needs, needed)
			if semver.Compare(r.Mod.Version, t.Version) > 0 {
				t.Version = r.Mod.Version
			}
		}
	}
	t.Modules = append(t.Modules, m)
	return nil
}

// released reports whether the module in a folder is for users, not only for work on this repository.
func released(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return path.Base(dir) != "test" && !slices.Contains([]string{"bench", "examples", "tools"}, first)
}

func (t *Tree) parse(dir string) (*modfile.File, error) {
	name := filepath.Join(t.Root, dir, "go.mod")
	data, err := os.ReadFile(name) //nolint:gosec // of the repository
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	return modfile.Parse(name, data, nil) //nolint:wrapcheck // names the file
}

// order puts each module after those that it requires. A released module must require only released ones.
func (t *Tree) order() error {
	unordered := t.Modules
	t.Modules = nil
	done := map[string]bool{} // by folder, whether it is released
	for len(unordered) > 0 {
		i := slices.IndexFunc(unordered, func(m Module) bool {
			return !slices.ContainsFunc(m.needs, func(dir string) bool { _, ok := done[dir]; return !ok })
		})
		if i < 0 {
			return fmt.Errorf("%s requires modules that are not there, or that require it: %q", unordered[0].Dir, unordered[0].needs)
		}
		m := unordered[i]
		for _, dir := range m.needs {
			if !done[dir] {
				return fmt.Errorf("%s requires %s, which is never released", m.Dir, dir)
			}
		}
		done[m.Dir] = m.Released
		t.Modules = append(t.Modules, m)
		unordered = slices.Delete(unordered, i, i+1)
	}
	return nil
}

// Output runs a command in a folder and returns its standard output.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(ctx, dir, nil, name, args...)
}

func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // git, go, tar, or a program that they made
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s in %s: %w\n%s%s", strings.Join(cmd.Args, " "), dir, err, out, stderr.String())
	}
	return string(out), nil
}

// listed is a package with its files, and where it is from.
const listed = "{{.ImportPath}}\t{{with .Module}}{{.Path}}\t{{.Version}} {{.Replace}}{{end}}\t{{.GoFiles}}{{.EmbedFiles}}{{.SFiles}}"

// Packages lists the packages that match a pattern in a folder, and all that they and their tests import: as seen through a proxy, or with
// nil as in the workspace. Modules of this repository have no version in the list.
func Packages(ctx context.Context, p *Proxy, dir, pattern string) ([]string, error) {
	var env []string
	if p != nil {
		env = p.env
	}
	out, err := output(ctx, dir, env, "go", "list", "-deps", "-test", "-f", listed, pattern)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines {
		if parts := strings.Split(line, "\t"); len(parts) == 4 && strings.HasPrefix(parts[1], Prefix) {
			lines[i] = strings.Join(slices.Delete(parts, 2, 3), "\t")
		}
	}
	return lines, err
}

// workTree returns the root of the work tree of the working directory.
func workTree(ctx context.Context) (string, error) {
	out, err := Output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	return strings.TrimSuffix(out, "\n"), err
}

// Scratch copies the work tree of dir to a temporary folder, reads its modules, and makes a proxy for them that shares the machine's
// module cache. The caller calls remove at the end.
func Scratch(ctx context.Context, dir string) (t *Tree, p *Proxy, remove func() error, err error) {
	temp, err := os.MkdirTemp("", "modules")
	if err != nil {
		return nil, nil, nil, err //nolint:wrapcheck // names the folder
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(temp))
		}
	}()
	copied := filepath.Join(temp, "tree")
	if err := Copy(ctx, dir, copied); err != nil {
		return nil, nil, nil, err
	}
	if t, err = Load(copied); err != nil {
		return nil, nil, nil, err
	}
	if err := t.Expect(ctx); err != nil {
		return nil, nil, nil, err
	}
	p, err = NewProxy(ctx, filepath.Join(temp, "proxy"), filepath.Join(temp, "cache"), true)
	return t, p, func() error { return Remove(temp) }, err
}

// Tidy brings the go.mod, go.sum and go.work files of a copy into order: the modules of the workspace agree on the versions that
// they need, and each lists only its own. The sums of the repository's own modules are then those of the present content.
func (t *Tree) Tidy(ctx context.Context, p *Proxy) error {
	if err := t.SetVersion(t.Version); err != nil {
		return err
	}
	if _, err := output(ctx, t.Root, []string{"GOWORK="}, "go", "work", "sync"); err != nil {
		return err
	}
	return t.Stage(ctx, p)
}

// Changes returns the files of modules and workspaces of the tree that differ from those of a work tree, by their names. With released
// they have the tree's sums of the repository's own modules, and otherwise the work tree's, which are those of the last release.
func (t *Tree) Changes(work string, released bool) (map[string]string, error) {
	names := make([]string, 0, 2*len(t.Modules))
	for _, m := range t.Modules {
		names = append(names, filepath.Join(m.Dir, "go.mod"), filepath.Join(m.Dir, "go.sum"))
	}
	for _, name := range t.Workspaces() {
		names = append(names, name, name+".sum")
	}
	changed := map[string]string{}
	for _, name := range names {
		now, err := read(filepath.Join(work, name))
		if err != nil {
			return nil, err
		}
		next, err := read(filepath.Join(t.Root, name))
		if err != nil {
			return nil, err
		}
		if filepath.Base(name) == "go.sum" && !released {
			next = withOwnSums(next, now)
		}
		if now != next {
			changed[name] = next
		}
	}
	return changed, nil
}

// withOwnSums returns the lines of a go.sum file, with the lines of the repository's own modules taken from another file.
func withOwnSums(text, from string) string {
	own, _ := splitSums(from)
	_, others := splitSums(text)
	at := 0
	for line := range strings.Lines(others) {
		if line > Prefix {
			break
		}
		at += len(line)
	}
	return others[:at] + own + others[at:]
}

// read returns the content of a file, "" for a missing one.
func read(name string) (string, error) {
	data, err := os.ReadFile(name) //nolint:gosec // of the repository
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err //nolint:wrapcheck // names the file
	}
	return string(data), nil
}
