package modules

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ofRelease = Prefix + "pkg v0.1.0 h1:released=\n" + Prefix + "pkg v0.1.0/go.mod h1:released=\n"

// repository makes one of two modules, of which pkg/natsrun requires pkg, with sums of a release.
func repository(t *testing.T) string {
	t.Helper()
	work := t.TempDir()
	put(t, work, "LICENSE", "free\n")
	put(t, work, "go.work", "go 1.26.0\n\nuse (\n\t./pkg\n\t./pkg/natsrun\n)\n")
	put(t, work, "pkg/go.mod", "module "+Prefix+"pkg\n\ngo 1.26.0\n")
	put(t, work, "pkg/kvlock/kvlock.go", "package kvlock\n\nconst Name = 1\n")
	put(t, work, "pkg/natsrun/go.mod", "module "+Prefix+"pkg/natsrun\n\ngo 1.26.0\n\nrequire "+Prefix+"pkg v0.1.0\n")
	put(t, work, "pkg/natsrun/go.sum", ofRelease)
	put(t, work, "pkg/natsrun/run.go", "package natsrun\n\nimport \""+Prefix+"pkg/kvlock\"\n\nconst Name = kvlock.Name\n")
	check.OK(t, check.Err(Output(t.Context(), work, "git", "init", "--quiet")))
	return work
}

func put(t *testing.T, work, name, text string) {
	t.Helper()
	name = filepath.Join(work, name)
	check.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
	check.OK(t, os.WriteFile(name, []byte(text), 0o600))
}

func scratch(t *testing.T, work string) (*Tree, *Proxy) {
	t.Helper()
	tree, proxy, remove, err := Scratch(t.Context(), work)
	check.OK(t, err)
	t.Cleanup(func() {
		check.Is(t, remove(), nil)
	})
	return tree, proxy
}

// Tidy keeps the sums of the last release, though the work tree has other content by then.
func TestTidyKeepsTheSumsOfTheLastRelease(t *testing.T) {
	t.Parallel()
	work := repository(t)
	tree, proxy := scratch(t, work)
	check.OK(t, tree.Tidy(t.Context(), proxy))
	changes, err := tree.Changes(work, false)
	want := "\t" + Prefix + "pkg v0.1.0 => ./pkg\n\t" + Prefix + "pkg/natsrun v0.1.0 => ./pkg/natsrun\n)\n"
	check.That(t, err == nil && len(changes) == 1 && strings.HasSuffix(changes["go.work"], want),
		"changes %q, %v: want only go.work to, with\n%s", changes, err, want)
	changes, err = tree.Changes(work, true)
	sums := changes["pkg/natsrun/go.sum"]
	check.That(t, err == nil && !strings.Contains(sums, "released") && strings.Count(sums, "\n") == 2, "sums of the copy, %v:\n%s", err, sums)
	text, err := read(filepath.Join(work, "pkg", "natsrun", "go.sum"))
	check.That(t, err == nil && text == ofRelease, "the work tree was changed: %v\n%s", err, text)
}

// A version stands for the content of the moment: no cache has the content of a moment ago.
func TestVersionIsThePresentContent(t *testing.T) {
	t.Parallel()
	work := repository(t)
	for _, name := range []string{"Name", "NewName", "NewerName"} {
		put(t, work, "pkg/kvlock/kvlock.go", "package kvlock\n\nconst "+name+" = 1\n")
		put(t, work, "pkg/natsrun/run.go", "package natsrun\n\nimport \""+Prefix+"pkg/kvlock\"\n\nconst Name = kvlock."+name+"\n")
		tree, proxy := scratch(t, work)
		check.OK(t, tree.Stage(t.Context(), proxy))
		check.Is(t, check.Err(proxy.Go(t.Context(), filepath.Join(tree.Root, "pkg", "natsrun"), "build", "./...")), nil)
	}
}

// A module has other packages alone if it does not get the files that the workspace has.
func TestPackagesAreThoseOfTheWorkspace(t *testing.T) {
	t.Parallel()
	work := repository(t)
	tree, _ := scratch(t, work)
	known := check.Must(Packages(t.Context(), nil, tree.Root, "work"))(t)
	for _, c := range []struct {
		file   string
		others int
	}{{"LICENSE", 0}, {"pkg/kvlock/new.go", 2}} {
		put(t, work, c.file, "package kvlock\n")
		tree, proxy := scratch(t, work)
		check.OK(t, tree.Stage(t.Context(), proxy))
		var others []string
		for _, m := range tree.Modules {
			packages := check.Must(Packages(t.Context(), proxy, filepath.Join(tree.Root, m.Dir), "./..."))(t)
			others = append(others, slices.DeleteFunc(packages, func(p string) bool { return slices.Contains(known, p) })...)
		}
		check.Same(t, "packages that are others with "+c.file, len(others), c.others)
	}
}

func TestSharedCacheHasAllButOurModules(t *testing.T) {
	t.Parallel()
	machine, cache := t.TempDir(), t.TempDir()
	for _, name := range []string{"golang.org/x/mod", "github.com/nats-io/nats.go", "github.com/expediter-io/expediter/pkg"} {
		put(t, machine, name+"@v1/go.mod", name)
		put(t, machine, "cache/download/"+name+"/@v/v1.mod", name)
	}
	check.OK(t, share(machine, cache))
	for name, want := range map[string]bool{
		"golang.org/x/mod@v1/go.mod": true, "github.com/nats-io/nats.go@v1/go.mod": true, "github.com/expediter-io": false,
		"cache/download/github.com/nats-io/nats.go/@v/v1.mod": true, "cache/download/github.com/expediter-io": false,
	} {
		_, err := os.Stat(filepath.Join(cache, name))
		check.That(t, (err == nil) == want, "%s: %v", name, err)
	}
	check.Is(t, Remove(cache), nil)
	check.Is(t, check.Err(os.Stat(filepath.Join(machine, "golang.org", "x", "mod@v1", "go.mod"))), nil)
}

func TestEachModuleIsAfterThoseThatItRequires(t *testing.T) {
	t.Parallel()
	tree := check.Must(Load("../../.."))(t)
	var before []string
	for _, m := range tree.Modules {
		for _, dir := range m.needs {
			check.That(t, slices.Contains(before, dir), "%s is before %s, which it requires", m.Dir, dir)
		}
		before = append(before, m.Dir)
	}
	work := repository(t)
	put(t, work, "pkg/go.mod", "module "+Prefix+"pkg\n\ngo 1.26.0\n\nrequire "+Prefix+"pkg/natsrun v0.1.0\n")
	check.Contains(t, check.Err(Load(work)), "that require it")
}

// The folders of bench are those of a workspace of its own, which has to have all that they require of this repository.
func TestEveryWorkspaceIsWhole(t *testing.T) {
	t.Parallel()
	tree := check.Must(Load("../../.."))(t)
	names := tree.Workspaces()
	check.That(t, slices.Equal(names, []string{"go.work", "bench/go.work"}), "workspaces %q", names)
	for _, name := range names {
		text := check.Must(read(filepath.Join(tree.Root, name)))(t)
		for _, m := range tree.Modules {
			if name == "bench/go.work" && m.Dir != "bench" || !strings.Contains(text, "\t./"+m.Dir+"\n") && m.Dir != "bench" {
				continue
			}
			for _, dir := range m.needs {
				check.That(t, strings.Contains(text, Prefix+dir+" "+tree.Version+" => "), "%s lacks %s, which %s requires", name, dir, m.Dir)
			}
		}
	}
}
