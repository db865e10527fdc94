package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files are a module with tests that fail in known ways.
var files = map[string]string{
	"go.mod": "module fake\n\ngo 1.26\n",

	// It passes the first time, and is killed from then on.
	"flaky/flaky_test.go": `package flaky

import (
	"flag"
	"os"
	"runtime"
	"testing"
)

var mark = flag.String("mark", "ran", "")

func TestFlaky(t *testing.T) {
	t.Log("seed 42")
	t.Log("cores", runtime.GOMAXPROCS(0))
	f, err := os.OpenFile(*mark, os.O_CREATE|os.O_EXCL, 0o600) // beside this file: tests run in their folder
	if err == nil {
		f.Close()
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self.Kill()
	select {}
}

func TestSteady(t *testing.T) {
	t.Run("sub", func(t *testing.T) { t.Error("never passes") })
}
`,
	"skips/skips_test.go": `package skips

import "testing"

func TestSkipped(t *testing.T) { t.Skip("a program is missing") }
`,
	"broken/broken_test.go": "package broken\n\nvar x = undefined\n",
	"bare/bare.go":          "package bare\n",

	// It fails, and waits for ever in its second test when that has opened a pipe.
	"hangs/hangs_test.go": `package hangs

import (
	"os"
	"testing"
)

func TestFails(t *testing.T) { t.Error("it failed before") }

func TestHangs(t *testing.T) {
	if _, err := os.OpenFile("pipe", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	select {}
}
`,
}

// module makes such a module and enters its folder.
func module(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-vet=off")
	t.Setenv("GOWORK", "off")
	t.Chdir(dir)
}

// wantLines checks that each pattern matches a line of what was printed.
func wantLines(t *testing.T, got string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(got) {
			t.Errorf("no line matches %q:\n%s", pattern, got)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Several packages are run by go test: one run of each kind, of which the first passes.
func TestSeveralPackages(t *testing.T) {
	module(t)
	out := t.TempDir()
	var got strings.Builder
	err := again(t.Context(), []string{"-idle", "1", "-busy", "1", "-one-core", "1", "-run", "Flaky|Skipped|Broken", "-out", out, "./..."}, &got)
	if !errors.Is(err, errFailed) {
		t.Errorf("error %v", err)
	}
	wantLines(t, got.String(),
		`idle 1 of 1: \S+, CPU \S+`,
		`skipped: a program is missing`, `    fake/skips TestSkipped`,
		`package +test that failed +idle +busy +one-core`,
		`fake/broken +\(did not build\) +1 of 1 +1 of 1 +1 of 1`,
		`fake/flaky +TestFlaky \(killed\) +0 of 1 +1 of 1 +1 of 1`,
		`one-core +1 +.*`,
	)
	if n := strings.Count(got.String(), "skipped:"); n != 1 {
		t.Errorf("skips are told %d times:\n%s", n, &got)
	}
	wantLines(t, read(t, filepath.Join(out, "busy-001-fake.flaky-TestFlaky.killed.txt")),
		`fake/flaky TestFlaky \(killed\) failed in run 1 of 1, busy`, ` +flaky_test.go:13: seed 42`, `signal: killed`)
	wantLines(t, read(t, filepath.Join(out, "one-core-001-fake.flaky-TestFlaky.killed.txt")), ` +flaky_test.go:14: cores 1`)
	wantLines(t, read(t, filepath.Join(out, "idle-001-fake.broken-.did.not.build.txt")), `.*: undefined: undefined`)
}

// One package is built once, and its tests run in its folder, several at a time if that is asked for.
func TestOnePackage(t *testing.T) {
	module(t)
	var got strings.Builder
	t.Setenv("TMPDIR", t.TempDir())
	args := []string{"-idle", "4", "-parallel", "2", "-run", "Steady|Flaky", "./flaky", "-args", "-mark", "other"}
	if err := again(t.Context(), args, &got); !errors.Is(err, errFailed) {
		t.Errorf("error %v", err)
	}
	wantLines(t, got.String(), `fake/flaky +TestFlaky \(killed\) +3 of 4`, `fake/flaky +TestSteady/sub +1 of 1`, `idle +4 +.*`)
	if _, err := os.Stat("flaky/other"); err != nil {
		t.Error(err)
	}
	folder := regexp.MustCompile(`(?m)^The output of each failure is in (.+)$`).FindStringSubmatch(got.String())
	if folder == nil {
		t.Fatalf("it does not say where the output is:\n%s", &got)
	}
	if files, err := filepath.Glob(filepath.Join(folder[1], "idle-00?-fake.flaky-Test*.txt")); err != nil || len(files) != 4 {
		t.Errorf("%v: %v: want the output of four failures", files, err)
	}
}

func TestNothingFails(t *testing.T) {
	module(t)
	var got strings.Builder
	if err := again(t.Context(), []string{"-idle", "2", "-out", t.TempDir(), "./skips"}, &got); err != nil {
		t.Error(err)
	}
	wantLines(t, got.String(), `nothing failed`, `idle +2 +.*`)
}

// An interrupt ends the tests. Tests that had failed by then are reported, and those that ended by the interrupt are
// not.
func TestInterrupt(t *testing.T) {
	module(t)
	if err := syscall.Mkfifo("hangs/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		defer interrupt()
		if f, err := os.Open("hangs/pipe"); err == nil { // when the test has opened it
			defer f.Close()
		}
	}()
	var got strings.Builder
	if err := again(ctx, []string{"-idle", "3", "-out", t.TempDir(), "./hangs"}, &got); !errors.Is(err, errFailed) {
		t.Errorf("error %v", err)
	}
	wantLines(t, got.String(), `interrupted: .*`, `idle +0 +.*`, `fake/hangs +TestFails +1 of 1`)
	if strings.Contains(got.String(), "TestHangs") {
		t.Errorf("what was interrupted counts:\n%s", &got)
	}
}

func TestWhatCannotBeRun(t *testing.T) {
	module(t)
	for want, args := range map[string][]string{
		"flag provided but not defined":    {"-once"},
		"Usage of again":                   {"-help"},
		"runs are counted from one":        {"-idle", "-1"},
		"directory not found":              {"./nowhere"},
		"undefined: undefined":             {"./broken"},
		"fake/bare has no tests":           {"./bare"},
		"invalid value \"often\" for flag": {"-idle", "often"},
	} {
		args = append([]string{"-out", t.TempDir()}, args...)
		err := again(t.Context(), args, io.Discard)
		if err == nil || errors.Is(err, errFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
}

func TestBusyLoopsEnd(t *testing.T) {
	t.Parallel()
	stop, err := busy(2)
	if err != nil {
		t.Fatal(err)
	}
	stop() // waits for them
}
