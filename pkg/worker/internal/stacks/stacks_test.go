package stacks_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func waitHere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

func elsewhere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

// The goroutines of a piece of work are found, also those that it started, and no others.
func TestOfFindsTheGoroutinesOfOnePieceOfWork(t *testing.T) {
	t.Parallel()
	started, until, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 3)
	mine, other := stacks.New(), stacks.New()
	for _, mark := range []stacks.Label{mine, other} {
		go stacks.Do(t.Context(), mark, []string{"pattern", "jobs.>"}, func(context.Context) {
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
	dump := stacks.Of(8<<10, other, mine)[mine]
	close(until)
	for range 3 {
		<-done
	}
	if strings.Count(dump, "stacks_test.waitHere") != 2 || strings.Contains(dump, "elsewhere") || !strings.Contains(dump, "stacks_test.go:") {
		t.Errorf("dump:\n%s", dump)
	}
	check.That(t, !strings.Contains(dump, "0x"), "addresses in the dump:\n%s", dump)
	check.That(t, stacks.Of(8<<10, mine)[mine] == "", "goroutines that have ended were found")
}

func TestOfIsBounded(t *testing.T) {
	t.Parallel()
	stacks.Do(t.Context(), "x1", nil, func(context.Context) {
		dump := stacks.Of(100, "x1")["x1"]
		check.That(t, len(dump) <= 100 && dump != "", "%d bytes, want 1 to 100", len(dump))
	})
}
