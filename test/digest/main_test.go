package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole output is kept if a package failed, and only then.
func TestRun(t *testing.T) {
	t.Parallel()
	for result, kept := range map[string]int{"pass": 0, "fail": 1} {
		dir := t.TempDir()
		events := `{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:1: I am well\n"}
{"Action":"pass","Package":"fake/a","Test":"TestA"}
{"Action":"` + result + `","Package":"fake/a"}
`
		var out strings.Builder
		check.Is(t, run(strings.NewReader(events), &out, dir), nil)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != kept {
			t.Fatalf("%s: %d files are kept, want %d: %v", result, len(files), kept, err)
		}
		if kept == 0 {
			continue
		}
		if end := "The whole output is in " + files[0] + "\nFAIL\n"; !strings.HasSuffix(out.String(), end) {
			t.Errorf("it ends with %q, want %q", out.String(), end)
		}
		if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "I am well") {
			t.Errorf("%q is kept: %v", text, err)
		}
	}
}
