package modules

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Scratch copies the work tree that dir is in to a temporary folder, reads its modules, and makes a proxy for them that shares
// the machine's module cache. The caller calls remove at the end.
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
// they need, and each lists what it needs alone. The sums of the repository's own modules are of the present content then.
func (t *Tree) Tidy(ctx context.Context, p *Proxy) error {
	if err := t.SetVersion(t.Version); err != nil {
		return err
	}
	if _, err := output(ctx, t.Root, []string{"GOWORK="}, "go", "work", "sync"); err != nil {
		return err
	}
	return t.Stage(ctx, p)
}

// Changes returns the files of modules and workspaces that differ from those of a work tree, by their names, as they are in its
// copy. With released they have the sums of the repository's own modules as they are there, and otherwise as they are in the
// work tree, which are of what was released last.
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

// withOwnSums returns the lines of a go.sum file with those of the repository's own modules from another.
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

// read returns "" for a file that is not there.
func read(name string) (string, error) {
	data, err := os.ReadFile(name) //nolint:gosec // of the repository
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err //nolint:wrapcheck // names the file
	}
	return string(data), nil
}
