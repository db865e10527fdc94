package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// SetVersion makes all modules require each other at a version, and the workspaces have that version here.
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

// Workspaces are the go.work files, below the root of the tree.
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

// setWorkspace has a go.work file say that the version of each released module is in its folder: the go command asks for the
// go.mod file of that version otherwise, which nobody has before it is released.
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

// Stage makes the tree what it is when its version is released, and puts the released modules into the proxy: each go.mod and
// go.sum file is tidied when the modules before it are in there, so that their sums are right. The tree is a copy, which
// nothing is built from but this: the licence is put into every module.
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

// dropSums removes the sums of the repository's own modules, which are those of another content.
func (t *Tree) dropSums(m Module) error {
	name := filepath.Join(m.Dir, "go.sum")
	text, err := read(filepath.Join(t.Root, name))
	if err != nil || text == "" {
		return err
	}
	_, others := splitSums(text)
	return t.write(name, []byte(others))
}

// splitSums parts the lines of a go.sum file into those of the repository's own modules and the others.
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
		// The go command gives a module of a repository the licence of that.
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

// PutTags puts the released modules into the proxy as the tags of a version have them, and returns the tree that they were made of.
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

// Archive puts the files of a commit into a new folder, those below some paths only if there are any.
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
