package modules

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// owner is the folder of the module cache that only modules of this repository are in.
const owner = "expediter-io"

// Proxy is a folder in the layout of a module proxy, with modules of this repository alone.
type Proxy struct {
	Dir string

	env []string // of those that ask it
}

// NewProxy returns a proxy in a folder, empty if there is none. It makes a module cache for those that ask it, which has no module
// of this repository: a module cache takes a version for something that never changes, and here it stands for what the work tree
// has at the moment. With shared the cache has all others that the machine's own module cache has, and what is downloaded gets
// there; otherwise it is empty, and is filled from what that has downloaded, or from the network.
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
		"GOFLAGS=" + flags + " -trimpath", // what is built in one temporary folder need not be built in the next
	}}, err
}

// Go runs the go command in a folder, with the modules of the proxy, and returns what it writes to its standard output.
func (p *Proxy) Go(ctx context.Context, dir string, args ...string) (string, error) {
	return output(ctx, dir, p.env, "go", args...)
}

// Run runs any program as Go does.
func (p *Proxy) Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(ctx, dir, p.env, name, args...)
}

// Env returns the variables, NAME=VALUE, under which the go command asks the proxy.
func (p *Proxy) Env() []string { return slices.Clone(p.env) }

// Setenv sets a variable, NAME=VALUE, for the programs to come.
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

// share makes a module cache of links into another, but for the modules of this repository.
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
