package lazyregexp

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first of many concurrent calls compiles the expression.
func TestFirstUseCompiles(t *testing.T) {
	t.Parallel()
	r := New(`^a+$`)
	check.That(t, r.compiled == nil, "New compiled the expression")
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { check.That(t, r.MatchString("aaa") && !r.MatchString("ab"), "matches something else") })
	}
	calls.Wait()
}

func TestInvalidExpressionFailsEveryTest(t *testing.T) {
	t.Parallel()
	defer func() { check.That(t, recover() != nil, "New took an invalid expression") }()
	New(`a(`)
}
