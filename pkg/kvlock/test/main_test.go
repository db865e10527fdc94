package kvlock_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
)

// long runs what takes minutes in full: a day of contention, minutes of faults in a cluster.
var long = flag.Bool("long", false, "run the long form of tests that have one")

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	holderMain()
	callerMain()
	goleak.VerifyTestMain(natstest.Parallel(m, 2))
}
