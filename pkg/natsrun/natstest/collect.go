package natstest

import (
	"os"
	"runtime/debug"
	"sync"
	"testing"
)

// heapGrowth is the growth of the heap between two garbage collections, in percent.
const heapGrowth = 400

// collectSeldom makes garbage collections in this process rarer, unless GOGC is set: the heap of a test is small, and
// collecting it is a fifth of a server's work. It does nothing in a benchmark, which measures the usual setting.
func collectSeldom(t testing.TB) {
	t.Helper()

	if _, ok := t.(*testing.B); !ok {
		setHeapGrowth()
	}
}

var setHeapGrowth = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
})
