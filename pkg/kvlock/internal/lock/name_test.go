package lock

import (
	"math/rand/v2"
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Each name has a key of its own, from which it is read back. A name that may be a key is its own.
func TestKeysOfNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.daily": "report.daily", "a=b/c": "a=b/c", "db1:5432.x": "=ZGIxOjU0MzI.x", "=": "=PQ", "a.=YQ": "a.=PVlR", "_kv": "=X2t2",
	} {
		if got := keyOf(name); got != want {
			t.Errorf("key of %q is %q, want %q", name, got, want)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		name := make([]byte, 1+r.IntN(8))
		for i := range name {
			name[i] = ".=aYQ:\x00\xff> "[r.IntN(10)]
		}
		key := keyOf(string(name))
		if CheckName(string(name)) == nil && (kv.CheckKey(key) != nil || nameOf(key) != string(name)) {
			t.Fatalf("key of %q is %q, of which the name is %q", name, key, nameOf(key))
		}
	}
}
