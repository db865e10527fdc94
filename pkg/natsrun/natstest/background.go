package natstest

import (
	"context"
	"sync"
	"testing"
)

// Background runs f until stop is called, at the latest when the test ends. Its context ends then, stop waits for it, and
// an error that it returns fails the test.
func Background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)

	go func() { done <- f(ctx) }()

	stop = sync.OnceFunc(func() {
		cancel()

		if err := <-done; err != nil {
			t.Errorf("in the background: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
