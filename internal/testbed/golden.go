package testbed

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var update = flag.Bool("update", false, "rewrite the files that the tests compare with")

// Golden fails the test, which goes on, when a file is not what the test got. With the flag -update it writes the file instead: after a
// change that is meant, read the difference.
func Golden(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		check.OK(t, os.WriteFile(file, got, 0o600))
		return
	}
	want, err := os.ReadFile(file)
	diff := cmp.Diff(string(want), string(got))
	check.That(t, err == nil && diff == "", "%s differs, -update rewrites it: %v\n(-file +got):\n%s", file, err, diff)
}
