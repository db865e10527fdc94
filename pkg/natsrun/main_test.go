package natsrun_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
)

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	orphanParentMain()
	// A server that is stopped while it makes a replicated stream leaves a store
	// of it open (createRaftGroup, when startRaftNode fails), and with it the
	// goroutine that keeps the time for all stores of the process.
	goleak.VerifyTestMain(natstest.Parallel(m, 4), goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
