package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func waitHere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

func elsewhere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

// The goroutines of a piece of work are found, also those that it started, and no others.
func TestStacksOfFindsTheGoroutinesOfOnePieceOfWork(t *testing.T) {
	t.Parallel()
	started, until, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 3)
	mine, other := newLabel(), newLabel()
	for _, mark := range []label{mine, other} {
		go mark.do(t.Context(), []string{"pattern", "jobs.>"}, func(context.Context) {
			if mark == other {
				elsewhere(started, until)
			} else {
				go func() {
					waitHere(started, until)
					done <- struct{}{}
				}()
				waitHere(started, until)
			}
			done <- struct{}{}
		})
	}
	for range 3 {
		<-started
	}
	dump := stacksOf(8<<10, other, mine)[mine]
	close(until)
	for range 3 {
		<-done
	}
	if strings.Count(dump, "worker.waitHere") != 2 || strings.Contains(dump, "elsewhere") || !strings.Contains(dump, "stacks_test.go:") {
		t.Errorf("dump:\n%s", dump)
	}
	check.That(t, !strings.Contains(dump, "0x"), "addresses in the dump:\n%s", dump)
	check.That(t, stacksOf(8<<10, mine)[mine] == "", "goroutines that have ended were found")
}

func TestStacksAreBounded(t *testing.T) {
	t.Parallel()
	label("x1").do(t.Context(), nil, func(context.Context) {
		dump := stacksOf(100, "x1")["x1"]
		check.That(t, len(dump) <= 100 && dump != "", "%d bytes, want 1 to 100", len(dump))
	})
}
