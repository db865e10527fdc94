package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A file with a key is read up to a bound: one that is named by mistake may have no end.
func TestAKeyIsReadUpToABound(t *testing.T) {
	t.Parallel()
	g := &globals{config: Config{Getenv: func(string) string { return "" }}}
	for name, size := range map[string]int{"some": maxKey, "more": maxKey + 1} {
		path := filepath.Join(t.TempDir(), name)
		check.OK(t, os.WriteFile(path, []byte(strings.Repeat("k", size)), 0o600))
		key, err := g.callerKey(path)
		if name == "some" {
			check.That(t, err == nil && len(key) == size, "%d bytes, %v", len(key), err)
			continue
		}
		check.ErrorContains(t, err, "--key-file", "has more than 16384 bytes")
	}
}
