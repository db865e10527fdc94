package natstest_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A server that is stopped while it makes a replicated stream leaves a store
	// of it open (createRaftGroup, when startRaftNode fails), and with it the
	// goroutine that keeps the time for all stores of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
