package natstest

import (
	"os"
	"runtime/debug"
	"sync"
	"testing"
)

// heapGrowth is by how much the heap grows between two collections of garbage, in percent.
const heapGrowth = 400

// collectSeldom has garbage collected less often in this process from now on, unless GOGC says
// how often: the heap of a test is small, and collecting it is a fifth of a server's work. A
// benchmark measures what others will have.
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
