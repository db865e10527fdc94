package service

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// spareHeap is the number of bytes of garbage from which on a service that uses less memory collects it.
	spareHeap = 64 << 20

	// leastHeap is the least memory that counts as used, in bytes: the runtime multiplies the percentage by at least that.
	leastHeap = 4 << 20

	// usualGrowth is the runtime's growth of the heap between two collections, in percent.
	usualGrowth = 100
)

// CollectSeldom makes this process collect its garbage once it is 64 MiB and as large as the memory in use, unless GOGC is set. A service
// uses some 10 MiB; a collection each time that this doubles takes a fifth of its CPU time. GOMEMLIMIT holds all the same.
func CollectSeldom() {
	if os.Getenv("GOGC") == "" {
		afterEach(func(growth int) { debug.SetGCPercent(growth) })
	}
}

// afterEach calls set with the growth of the heap until the next collection, in percent, now and after each collection.
func afterEach(set func(growth int)) {
	type mark struct{ _ [1 << 5]byte } // of a size that shares no memory block with other values, which would keep it alive
	var collected func(*mark)
	collected = func(m *mark) {
		set(growth())
		runtime.SetFinalizer(m, collected)
	}
	collected(new(mark))
}

// growth returns the growth of the heap, in percent, at which spareHeap bytes are garbage.
func growth() int {
	used := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(used)
	sum := uint64(0)
	for _, s := range used {
		sum += s.Value.Uint64()
	}
	return max(usualGrowth, int(spareHeap*100/max(sum, leastHeap))) //nolint:gosec // at most 1,600
}
