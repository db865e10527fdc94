package service

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// spareHeap is how many bytes of garbage a service may have before it is collected, when it uses less memory than that.
	spareHeap = 64 << 20

	// leastHeap is the least that counts as used, in bytes: the runtime multiplies the percentage by as much.
	leastHeap = 4 << 20

	// usualGrowth is the runtime's growth of the heap between two collections, in percent.
	usualGrowth = 100
)

// CollectSeldom has the garbage of this process collected once there are 64 MiB of it, and as much as is in use, unless GOGC is set. A
// service uses some 10 MiB; collecting each time that this doubles is a fifth of its work. GOMEMLIMIT holds as it does otherwise.
func CollectSeldom() {
	if os.Getenv("GOGC") == "" {
		afterEach(func(growth int) { debug.SetGCPercent(growth) })
	}
}

// afterEach calls set with the growth of the heap until the next collection, in percent, now and after each collection.
func afterEach(set func(growth int)) {
	type mark struct{ _ [1 << 5]byte } // of a size that shares no memory with others, which would keep it
	var collected func(*mark)
	collected = func(m *mark) {
		set(growth())
		runtime.SetFinalizer(m, collected)
	}
	collected(new(mark))
}

// growth returns the growth of the heap at which there are spareHeap of garbage, in percent.
func growth() int {
	used := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(used)
	sum := uint64(0)
	for _, s := range used {
		sum += s.Value.Uint64()
	}
	return max(usualGrowth, int(spareHeap*100/max(sum, leastHeap))) //nolint:gosec // at most 1,600
}
