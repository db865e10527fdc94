package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// SetVersion makes all modules require each other at a version, and the workspaces replace that version by the folders.
func (t *Tree) SetVersion(version string) error {
	t.Version = version
	for _, m := range t.Modules {
		file, err := t.parse(m.Dir)
		if err != nil {
			return err
		}
		for _, dir := range m.needs {
			if err := file.AddRequire(Prefix+dir, version); err != nil { // keeps the line and its comment
				return fmt.Errorf("%s/go.mod: %w", m.Dir, err)
			}
		}
		text, err := file.Format()
		if err != nil {
			return fmt.Errorf("%s/go.mod: %w", m.Dir, err)
		}
		if err := t.write(filepath.Join(m.Dir, "go.mod"), text); err != nil {
			return err
		}
	}
	for _, name := range t.Workspaces() {
		if err := t.setWorkspace(name); err != nil {
			return err
		}
	}
	return nil
}

// Workspaces returns the paths of the go.work files, below the root of the tree.
func (t *Tree) Workspaces() []string {
	var names []string
	for _, dir := range append([]string{"."}, t.dirs()...) {
		name := filepath.Join(dir, "go.work")
		if _, err := os.Stat(filepath.Join(t.Root, name)); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func (t *Tree) dirs() []string {
	dirs := make([]string, len(t.Modules))
	for i, m := range t.Modules {
		dirs[i] = m.Dir
	}
	return dirs
}

// setWorkspace makes a go.work file replace the version of each released module by its folder. Otherwise the go command asks for the
// go.mod file of that version, which does not exist before the release.
func (t *Tree) setWorkspace(name string) error {
	data, err := read(filepath.Join(t.Root, name))
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(name, []byte(data), nil)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	for _, r := range slices.Clone(work.Replace) {
		if strings.HasPrefix(r.Old.Path, Prefix) {
			if err := work.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	work.Cleanup()
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s", modfile.Format(work.Syntax), workspaceNote)
	for _, use := range work.Use {
		dir := filepath.ToSlash(filepath.Join(filepath.Dir(name), use.Path))
		if slices.ContainsFunc(t.Modules, func(m Module) bool { return m.Released && m.Dir == dir }) {
			fmt.Fprintf(&text, "\t%s%s %s => %s\n", Prefix, dir, t.Version, use.Path)
		}
	}
	text.WriteString(")\n")
	return t.write(name, []byte(text.String()))
}

// workspaceNote precedes the versions that a workspace has in its folders.
const workspaceNote = `
// The version that the modules require of each other may not be released yet. tools/tidy and test/release write these lines.
replace (
`

func (t *Tree) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(t.Root, name), text, 0o644) //nolint:gosec,wrapcheck // as Git makes it; names the file
}

// Stage brings the tree into its state at the release of its version, and puts the released modules into the proxy. Each go.mod and go.sum
// file is tidied when the earlier modules are in the proxy, so that their sums are right. The tree must be a copy: the licence is put into
// every module.
func (t *Tree) Stage(ctx context.Context, p *Proxy) error {
	for _, m := range t.Modules {
		if err := t.dropSums(m); err != nil {
			return err
		}
		if _, err := p.Go(ctx, filepath.Join(t.Root, m.Dir), "mod", "tidy"); err != nil {
			return err
		}
		if !m.Released {
			continue
		}
		if err := t.Put(p, m); err != nil {
			return err
		}
	}
	return nil
}

// dropSums removes the sums of the repository's own modules, which belong to other content.
func (t *Tree) dropSums(m Module) error {
	name := filepath.Join(m.Dir, "go.sum")
	text, err := read(filepath.Join(t.Root, name))
	if err != nil || text == "" {
		return err
	}
	_, others := splitSums(text)
	return t.write(name, []byte(others))
}

// splitSums splits the lines of a go.sum file into those of the repository's own modules and the others.
func splitSums(text string) (own, others string) {
	var parts [2]strings.Builder
	for line := range strings.Lines(text) {
		part := &parts[1]
		if strings.HasPrefix(line, Prefix) {
			part = &parts[0]
		}
		part.WriteString(line)
	}
	return parts[0].String(), parts[1].String()
}

// Put puts a module of the tree into the proxy, at the tree's version.
func (t *Tree) Put(p *Proxy, m Module) (err error) {
	dir := filepath.Join(t.Root, m.Dir)
	if _, err := os.Stat(filepath.Join(dir, "LICENSE")); errors.Is(err, os.ErrNotExist) {
		// The go command gives a module of a repository the repository's licence.
		if err := copyFile(filepath.Join(t.Root, "LICENSE"), filepath.Join(dir, "LICENSE")); err != nil {
			return err
		}
	}
	escaped, err := module.EscapePath(m.Path())
	if err != nil {
		return err //nolint:wrapcheck // names the path
	}
	at := filepath.Join(p.Dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // of files that are public
		return err //nolint:wrapcheck // names the folder
	}
	if err := copyFile(filepath.Join(dir, "go.mod"), filepath.Join(at, t.Version+".mod")); err != nil {
		return err
	}
	for name, text := range map[string]string{"list": t.Version + "\n", t.Version + ".info": fmt.Sprintf(`{"Version":%q}`, t.Version)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}
	w, err := os.Create(filepath.Join(at, t.Version+".zip")) //nolint:gosec // of a temporary folder
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	err = zip.CreateFromDir(w, module.Version{Path: m.Path(), Version: t.Version}, dir)
	return errors.Join(err, w.Close())
}

// PutTags puts the released modules at the tags of a version into the proxy, and returns their tree.
func PutTags(ctx context.Context, work, version string, p *Proxy) (*Tree, error) {
	root := p.Dir + "-" + version
	if err := Archive(ctx, work, "pkg/"+version, root); err != nil {
		return nil, err
	}
	tree, err := Load(root)
	if err != nil {
		return nil, err
	}
	tree.Version = version
	for _, m := range tree.Modules {
		if !m.Released {
			continue
		}
		one := filepath.Join(root+"-tags", m.Dir)
		if err := Archive(ctx, work, m.Tag(version), one, "LICENSE", m.Dir); err != nil {
			return nil, err
		}
		if err := (&Tree{Root: one, Version: version}).Put(p, m); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// Archive puts the files of a commit into a new folder: only those below paths, if there are any paths.
func Archive(ctx context.Context, work, commit, dir string, paths ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as Git makes it
		return err //nolint:wrapcheck // names the folder
	}
	file := dir + ".tar"
	if _, err := Output(ctx, work, "git", append([]string{"archive", "-o", file, commit}, paths...)...); err != nil {
		return err
	}
	_, err := Output(ctx, dir, "tar", "-xf", file)
	return errors.Join(err, os.Remove(file))
}

// owner is the folder of the module cache that has only modules of this repository.
const owner = "expediter-io"

// Proxy is a folder in the layout of a module proxy, with modules of this repository alone.
type Proxy struct {
	Dir string

	env []string // of those that ask it
}

// NewProxy returns a proxy in a folder, empty if there is none. It makes a module cache for its clients, without modules of this
// repository: in a module cache a version never changes, and here it stands for the present content of the work tree. With shared the
// cache has all other modules of the machine's own cache, and downloads go there. Otherwise it is empty, and is filled from the downloads
// of the machine's cache, or from the network.
func NewProxy(ctx context.Context, dir, cache string, shared bool) (*Proxy, error) {
	out, err := Output(ctx, ".", "go", "env", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOFLAGS")
	if err != nil {
		return nil, err
	}
	settings := strings.Split(out, "\n")
	machine, upstream, unsummed, flags := settings[0], settings[1], settings[2], settings[3]
	proxies := []string{"file://" + filepath.ToSlash(dir)}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // as the go command makes it
		return nil, err //nolint:wrapcheck // names the folder
	}
	if shared {
		err = share(machine, cache)
	} else {
		proxies = append(proxies, "file://"+filepath.ToSlash(filepath.Join(machine, "cache", "download")))
	}
	return &Proxy{Dir: dir, env: []string{
		"GOWORK=off", "GOMODCACHE=" + cache, "GOPROXY=" + strings.Join(append(proxies, upstream), ","),
		"GONOPROXY=none", "GONOSUMDB=" + strings.Trim(unsummed+","+strings.TrimSuffix(Prefix, "/"), ","),
		"GOFLAGS=" + flags + " -trimpath", // packages built in one temporary folder need not be built in the next
	}}, err
}

// Go runs the go command in a folder, with the modules of the proxy, and returns its standard output.
func (p *Proxy) Go(ctx context.Context, dir string, args ...string) (string, error) {
	return output(ctx, dir, p.env, "go", args...)
}

// Run is Go for any program.
func (p *Proxy) Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(ctx, dir, p.env, name, args...)
}

// Env returns the variables, NAME=VALUE, with which the go command uses the proxy.
func (p *Proxy) Env() []string { return slices.Clone(p.env) }

// Setenv sets a variable, NAME=VALUE, for later programs.
func (p *Proxy) Setenv(variable string) { p.env = append(p.env, variable) }

// Expect makes folders of the machine's module cache for the modules that a tree names, so that a cache that shares it keeps them there.
func (t *Tree) Expect(ctx context.Context) error {
	machine, err := Output(ctx, ".", "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	machine = strings.TrimSpace(machine)
	for _, m := range t.Modules {
		text, err := read(filepath.Join(t.Root, m.Dir, "go.sum"))
		if err != nil {
			return err
		}
		_, others := splitSums(text)
		for line := range strings.Lines(others) {
			name, _, _ := strings.Cut(line, " ")
			if name, err = module.EscapePath(name); err != nil {
				return err //nolint:wrapcheck // names the path
			}
			parts := strings.Split(name, "/")
			if parts[0] == "github.com" {
				parts[0] += "/" + parts[1]
			}
			for _, dir := range []string{parts[0], "cache/download/" + parts[0]} {
				if err := os.MkdirAll(filepath.Join(machine, dir), 0o755); err != nil { //nolint:gosec // as the go command makes it
					return err //nolint:wrapcheck // names the folder
				}
			}
		}
	}
	return nil
}

// share makes a module cache of links into another, without the modules of this repository.
func share(machine, cache string) error {
	own := []string{".", "cache", "cache/download", "cache/download/github.com", "github.com"}
	for _, dir := range own {
		for _, root := range []string{machine, cache} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // as the go command makes it
				return err //nolint:wrapcheck // names the folder
			}
		}
		entries, err := os.ReadDir(filepath.Join(machine, dir))
		if err != nil {
			return err //nolint:wrapcheck // names the folder
		}
		for _, entry := range entries {
			name := filepath.ToSlash(filepath.Join(dir, entry.Name()))
			if slices.Contains(own, name) || entry.Name() == owner {
				continue
			}
			if err := os.Symlink(filepath.Join(machine, name), filepath.Join(cache, name)); err != nil {
				return err //nolint:wrapcheck // names the file
			}
		}
	}
	return nil
}

// Remove removes a folder with module caches in it, which the go command makes unwritable. It follows no links.
func Remove(dir string) error {
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(name, 0o700) //nolint:gosec // it is removed
		}
		return err //nolint:wrapcheck // names the folder
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return os.RemoveAll(dir) //nolint:wrapcheck // names the file
}
