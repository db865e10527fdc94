package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/modules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const header = "module " + modules.Prefix

// files are a repository of three modules that are released and one that is not, all without requirements of others.
var files = map[string]string{
	"LICENSE":               "free\n",
	changelog:               "# Changelog\n\n## Unreleased\n\n### Added\n\n- Everything.\n",
	"go.work":               "go 1.26.0\n\nuse (\n\t./cmd/expediter\n\t./pkg\n\t./pkg/natsrun\n\t./pkg/test\n)\n",
	"cmd/expediter/go.mod":  header + "cmd/expediter\n\ngo 1.26.0\n\nrequire " + modules.Prefix + "pkg/natsrun v0.0.1\n\nrequire " + modules.Prefix + "pkg v0.0.1 // indirect\n",
	"cmd/expediter/main.go": "package main\n\nimport \"" + modules.Prefix + "pkg/natsrun\"\n\nfunc main() { println(natsrun.Name()) }\n",
	"pkg/go.mod":            header + "pkg\n\ngo 1.26.0\n",
	"pkg/kvlock/kvlock.go":  "// Package kvlock has a licence of its own.\npackage kvlock\n\nfunc Name() string { return \"kvlock\" }\n",
	"pkg/natsrun/go.mod":    header + "pkg/natsrun\n\ngo 1.26.0\n\nrequire " + modules.Prefix + "pkg v0.0.1\n",
	"pkg/natsrun/LICENSE":   "freer\n",
	"pkg/natsrun/run.go":    "package natsrun\n\nimport \"" + modules.Prefix + "pkg/kvlock\"\n\nfunc Name() string { return kvlock.Name() }\n",
	"pkg/test/go.mod":       header + "pkg/test\n\ngo 1.26.0\n\nrequire " + modules.Prefix + "pkg v0.0.1\n",
	"pkg/test/name_test.go": "package test\n\nimport _ \"" + modules.Prefix + "pkg/kvlock\"\n",
}

// repository makes such a repository, and returns a release of it and its output.
func repository(t *testing.T, version string) (*release, *strings.Builder) {
	t.Helper()
	work := t.TempDir()
	for name, text := range files {
		put(t, work, name, text)
	}
	git(t, work, "init", "--quiet", "--initial-branch=main")
	git(t, work, "config", "user.email", "ada@example.org")
	git(t, work, "config", "user.name", "Ada")
	git(t, work, "config", "commit.gpgSign", "false")
	git(t, work, "config", "tag.gpgSign", "false")
	commit(t, work)
	tool := check.Must(modules.Output(t.Context(), filepath.Join("..", ".."), "tools/bin", "golang.org/x/exp/cmd/gorelease"))(t)
	out := &strings.Builder{}
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	return &release{now: now, say: &modules.Printer{W: out}, tool: strings.TrimSpace(tool), version: version, work: work}, out
}

func put(t *testing.T, work, name, text string) {
	t.Helper()
	name = filepath.Join(work, name)
	check.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
	check.OK(t, os.WriteFile(name, []byte(text), 0o644))
}

func git(t *testing.T, work string, args ...string) string {
	t.Helper()
	return check.Must(modules.Output(t.Context(), work, "git", args...))(t)
}

func commit(t *testing.T, work string) {
	t.Helper()
	git(t, work, "add", "-A")
	git(t, work, "commit", "--quiet", "-m", "Change")
}

// made makes a release that has to succeed.
func made(t *testing.T, r *release, version string) {
	t.Helper()
	r.version = version
	check.OK(t, r.make(t.Context(), true))
}

func TestReleaseIsOneCommitWithATagForEachModule(t *testing.T) {
	t.Parallel()
	r, out := repository(t, "v0.1.0")
	made(t, r, "v0.1.0")
	check.Same(t, "not committed", git(t, r.work, "status", "--porcelain"), "")
	check.Same(t, "the commit", git(t, r.work, "log", "-1", "--format=%s"), "Release v0.1.0\n")
	push := "git push --atomic origin HEAD pkg/v0.1.0 pkg/natsrun/v0.1.0 cmd/expediter/v0.1.0\n"
	check.That(t, strings.HasSuffix(out.String(), push), "it prints\n%s\nwant each module after those that it requires:\n%s", out, push)
	check.Same(t, "tags", len(strings.Fields(git(t, r.work, "tag", "--points-at", "HEAD"))), 3)
	for name, want := range map[string]string{
		changelog:            "## Unreleased\n\n## v0.1.0 - 2026-11-24\n\n### Added\n\n- Everything.\n",
		"pkg/natsrun/go.mod": modules.Prefix + "pkg v0.1.0\n",
		"pkg/test/go.mod":    modules.Prefix + "pkg v0.1.0\n",
		"go.work":            modules.Prefix + "pkg v0.1.0 => ./pkg\n",
		"pkg/test/go.sum":    modules.Prefix + "pkg v0.1.0 h1:",
	} {
		if text, err := os.ReadFile(filepath.Join(r.work, name)); err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "v0.0.1") {
			t.Errorf("%s, %v: want %q in it, and nothing of v0.0.1:\n%s", name, err, want, text)
		}
	}
}

// The go command itself fetches each module from the repository, by its tag, and finds the sums that the others have of it. The
// next release changes one module, and with it the sums in the others.
func TestSumsAreThoseOfTheTags(t *testing.T) {
	t.Parallel()
	r, _ := repository(t, "")
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		put(t, r.work, changelog, files[changelog]+version)
		put(t, r.work, "pkg/kvlock/version.go", "package kvlock\n\nconst Version = \""+version+"\"\n")
		commit(t, r.work)
		made(t, r, version)
		fetched := fetch(t, r.work, version)
		for _, name := range []string{"cmd/expediter/go.sum", "pkg/natsrun/go.sum", "pkg/test/go.sum"} {
			text := check.Must(os.ReadFile(filepath.Join(r.work, name)))(t)
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSpace(line)
				check.That(t, fetched[line], "%s has %q: fetched was %v", name, line, fetched)
			}
		}
	}
}

// fetch returns the lines that go.sum files have of the released modules, as the go command computes them from the repository.
func fetch(t *testing.T, work, version string) map[string]bool {
	t.Helper()
	temp := t.TempDir()
	lines := map[string]bool{}
	for _, dir := range []string{"pkg", "pkg/natsrun", "cmd/expediter"} {
		text, err := modules.Output(t.Context(), temp, "env", "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+filepath.Join(temp, "cache"),
			"GOPROXY=direct", "GOPRIVATE=*", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+work+".insteadOf",
			"GIT_CONFIG_VALUE_0=https://"+strings.TrimSuffix(modules.Prefix, "/"), "go", "mod", "download", "-json", modules.Prefix+dir+"@"+version)
		check.OK(t, err)
		var module struct{ GoModSum, Path, Sum, Version string }
		if err := json.Unmarshal([]byte(text), &module); err != nil { //nolint:musttag // the names are the go command's
			t.Fatal(err)
		}
		lines[module.Path+" "+module.Version+" "+module.Sum] = true
		lines[module.Path+" "+module.Version+"/go.mod "+module.GoModSum] = true
	}
	return lines
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	r, out := repository(t, "v0.1.0")
	before := git(t, r.work, "rev-parse", "HEAD")
	check.OK(t, r.make(t.Context(), false))
	if git(t, r.work, "rev-parse", "HEAD") != before || git(t, r.work, "status", "--porcelain") != "" || git(t, r.work, "tag") != "" {
		t.Error("it did something")
	}
	for _, want := range []string{"\tpkg/v0.1.0\n\tpkg/natsrun/v0.1.0\n\tcmd/expediter/v0.1.0\n", "CHANGELOG.md", noRelease, "--yes"} {
		check.That(t, strings.Contains(out.String(), want), "it prints no %q:\n%s", want, out)
	}
}

func TestWhatStandsAgainstARelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		prepare func(t *testing.T, work string)
		want    string
	}{
		"a change that is not committed": {
			"v0.1.0", func(t *testing.T, work string) { t.Helper(); put(t, work, "pkg/new.txt", "new") }, "?? pkg/new.txt",
		},
		"a tag of the version": {
			"v0.1.0", func(t *testing.T, work string) { t.Helper(); git(t, work, "tag", "pkg/natsrun/v0.1.0") }, "the tag pkg/natsrun/v0.1.0 exists",
		},
		"a greater version": {
			"v0.9.0", func(t *testing.T, work string) { t.Helper(); git(t, work, "tag", "pkg/v0.10.0") }, "not greater than the last release, v0.10.0",
		},
		"nothing that is unreleased": {
			"v0.1.0", func(t *testing.T, work string) {
				t.Helper()
				put(t, work, changelog, "# Changelog\n\n## Unreleased\n\n## v0.0.1\n\n- Something.\n")
				commit(t, work)
			}, "CHANGELOG.md has nothing",
		},
		"no version":        {"0.1", func(*testing.T, string) {}, `"0.1" is no version`},
		"a major version":   {"v2.0.0", func(*testing.T, string) {}, "other paths"},
		"not of this shape": {"v0.1.0-rc.1", func(*testing.T, string) {}, "is no version"},
		"a released module that requires one that is not": {
			"v0.1.0", func(t *testing.T, work string) {
				t.Helper()
				put(t, work, "pkg/natsrun/go.mod", files["pkg/natsrun/go.mod"]+"\nrequire "+modules.Prefix+"pkg/test v0.0.1\n")
				commit(t, work)
			}, "pkg/natsrun requires pkg/test, which is never released",
		},
		"a replacement": {
			"v0.1.0", func(t *testing.T, work string) {
				t.Helper()
				put(t, work, "pkg/natsrun/go.mod", files["pkg/natsrun/go.mod"]+"\nreplace "+modules.Prefix+"pkg => ..\n")
				commit(t, work)
			}, "pkg/natsrun/go.mod replaces",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, out := repository(t, c.version)
			c.prepare(t, r.work)
			tags := git(t, r.work, "tag")
			err := r.make(t.Context(), true)
			check.That(t, err != nil && strings.Contains(err.Error(), c.want), "error %v, want %q:\n%s", err, c.want, out)
			check.Same(t, "tags", git(t, r.work, "tag"), tags)
		})
	}
}

// A patch must not break the API, and another release before v1 may: it lists the breaking changes. Internal packages are not
// compared.
func TestBrokenAPIIsToldAndRefusedInAPatch(t *testing.T) {
	t.Parallel()
	r, out := repository(t, "")
	put(t, r.work, "pkg/internal/secret/secret.go", "package secret\n\nfunc Gone() {}\n")
	commit(t, r.work)
	made(t, r, "v0.1.0")
	put(t, r.work, changelog, files[changelog])
	put(t, r.work, "pkg/kvlock/kvlock.go", "package kvlock\n\nfunc Name(of ...int) string { return \"kvlock\" }\n")
	put(t, r.work, "pkg/internal/secret/secret.go", "package secret\n")
	commit(t, r.work)
	out.Reset()
	r.version = ""
	check.Is(t, r.api(t.Context()), nil)
	want := "API: breaking changes since v0.1.0:\n\tpkg/kvlock: Name: changed from func() string to func(...int) string\n"
	check.That(t, out.String() == want, "it prints\n%s\nwant\n%s", out, want)
	r.version = "v0.1.1"
	check.Contains(t, r.make(t.Context(), true), "v0.1.1 must not break the API")
	made(t, r, "v0.2.0")
	put(t, r.work, changelog, files[changelog])
	put(t, r.work, "pkg/kvlock/more.go", "package kvlock\n\nfunc More() {}\n")
	commit(t, r.work)
	made(t, r, "v0.2.1") // adds
}
