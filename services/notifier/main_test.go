package notifier

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

func TestMain(m *testing.M) {
	child.Main(notifierRole, notify)
	child.Main(fallingRole, falling)
	child.Main(largeRole, large)
	child.Main(sourceRole, source)
	child.Main(serverRole, serve)
	natsrun.NodeMain()
	goleak.VerifyTestMain(natstest.Parallel(m, 2))
}
