package installed

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spy is a test that only takes down how it ended.
type spy struct {
	testing.TB

	said string
}

func (*spy) Helper() {}

func (s *spy) Fatalf(format string, args ...any) {
	s.said = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (s *spy) Skipf(format string, args ...any) {
	s.said = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// find returns the result of p.Find, and how the test ended.
func find(p Program) (paths []string, said string) {
	var s spy
	done := make(chan struct{})
	go func() {
		defer close(done)
		paths = p.Find(&s)
	}()
	<-done
	return paths, s.said
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	place := func(path ...string) string {
		name := filepath.Join(append([]string{dir}, path...)...)
		check.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
		check.OK(t, os.WriteFile(name, nil, 0o700))
		return name
	}
	inPath, newest := place("bin", "make"), place("lib", "17", "sell")
	place("lib", "16", "sell")
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	p := Program{name: "Shop", commands: []string{"make", "sell"}, folders: filepath.Join(dir, "lib", "*")}
	paths, said := find(p)
	check.That(t, said == "" && slices.Equal(paths, []string{inPath, newest}), "found %q, %q", paths, said)
	p.folders = ""
	t.Setenv(require, "")
	_, said = find(p)
	check.That(t, said == "skipped: Shop is missing: install it to run this test", "it says %q", said)
	t.Setenv(require, "1")
	_, said = find(p)
	check.That(t, said == "failed: Shop is missing, and EXPEDITER_REQUIRE_PROGRAMS is set", "it says %q", said)
}
