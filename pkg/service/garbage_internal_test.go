package service

import (
	"runtime"
	"testing"
)

// TestGarbageIsCollectedSeldom: a heap that is small may grow by more than itself, and one that is large by no more.
func TestGarbageIsCollectedSeldom(t *testing.T) {
	t.Parallel()
	runtime.GC() // the garbage of earlier tests
	grown := make(chan int, 1)
	afterEach(func(growth int) {
		select {
		case grown <- growth:
		default:
		}
	})
	if small := <-grown; small <= usualGrowth {
		t.Errorf("a small heap grows by %d %%", small)
	}
	large := make([]byte, spareHeap)
	for growth := 0; growth != usualGrowth; growth = <-grown {
		runtime.GC()
	}
	runtime.KeepAlive(large)
}
