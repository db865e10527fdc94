// Package folderproxy serves the released modules of this repository from a folder, as a module proxy would after a release.
package folderproxy

import (
	"context"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Version is the version of all modules: the one at which they require each other.
const Version = "v0.1.0"

// Module is the path of the root module.
const Module = "github.com/expediter-io/expediter"

// Env puts the released modules of the work tree at root into a folder, and returns the environment in which the go command gets them from
// there. The module cache is new, because a version in a module cache never changes; it is filled from the machine's downloads. With
// -trimpath, the folder of the module cache is no part of what is compiled, so the build cache has all that did not change since the last
// run.
func Env(tb testing.TB, root string) []string {
	tb.Helper()
	root = check.Must(filepath.Abs(root))(tb)
	proxy, cache := tb.TempDir(), filepath.Join(tb.TempDir(), "mod")
	names := strings.Split(strings.TrimSuffix(output(tb, root, "git", "ls-files", "-coz", "--exclude-standard"), "\x00"), "\x00")
	for _, dir := range []string{"", "cmd/expediter", "services/enricher", "services/importer", "services/notifier"} {
		put(tb, root, dir, names, filepath.Join(proxy, filepath.FromSlash(path.Join(Module, dir)), "@v"))
	}
	settings := strings.Split(output(tb, root, "go", "env", "GOMODCACHE", "GOPROXY", "GOFLAGS"), "\n")
	env := append(os.Environ(),
		"GOWORK=off", "GOMODCACHE="+cache, "GOFLAGS="+settings[2]+" -ldflags=-s -trimpath",
		"GOSUMDB=off", "GONOPROXY=none", // the machine's cache has checked the sums of others
		"GOPROXY="+address(proxy)+","+address(filepath.Join(settings[0], "cache", "download"))+","+settings[1])
	tb.Cleanup(func() { // the cache is read-only
		cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "go", "clean", "-modcache")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		check.That(tb, err == nil, "go clean -modcache: %v\n%s", err, out)
	})
	return env
}

// address returns the address of a folder, in which a comma would end it.
func address(folder string) string {
	return strings.ReplaceAll((&url.URL{Scheme: "file", Path: folder}).String(), ",", "%2C")
}

// put writes the files of one module's version into its folder of the proxy.
func put(tb testing.TB, root, dir string, names []string, at string) {
	tb.Helper()
	var files []zip.File
	for _, name := range names {
		below, ok := strings.CutPrefix(name, dir)
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil || !ok || isOfAnother(root, dir, name) {
			continue // deleted, or not of this module
		}
		files = append(files, file{strings.TrimPrefix(below, "/"), filepath.Join(root, name)})
	}
	if dir != "" { // the go command gives a module of a repository the repository's licence
		files = append(files, file{"LICENSE", filepath.Join(root, "LICENSE")})
	}
	check.OK(tb, os.MkdirAll(at, 0o700))
	mod := check.Must(os.ReadFile(filepath.Join(root, dir, "go.mod")))(tb)
	check.OK(tb, os.WriteFile(filepath.Join(at, Version+".mod"), mod, 0o600))
	check.OK(tb, os.WriteFile(filepath.Join(at, Version+".info"), []byte(`{"Version":"`+Version+`"}`), 0o600))
	check.OK(tb, os.WriteFile(filepath.Join(at, "list"), []byte(Version+"\n"), 0o600))
	w := check.Must(os.Create(filepath.Join(at, Version+".zip")))(tb)
	check.OK(tb, zip.Create(w, module.Version{Path: path.Join(Module, dir), Version: Version}, files))
	check.OK(tb, w.Close())
}

// isOfAnother reports whether a file in the folder of a module belongs to a module below it.
func isOfAnother(root, dir, name string) bool {
	for at := path.Dir(name); at != "." && at != dir; at = path.Dir(at) {
		if _, err := os.Stat(filepath.Join(root, at, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// file implements [zip.File].
type file struct{ name, at string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.at) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.at) }

func output(tb testing.TB, dir, name string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	check.Require(tb, err == nil, "%s: %v", cmd, err)
	return string(out)
}
