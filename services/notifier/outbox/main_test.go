package outbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
	"github.com/expediter-io/expediter/services/notifier/outbox/outboxtest"
)

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	child.Main(relayRole, relayAndDie)
	child.Main(frozenRole, relayAndFreeze)
	goleak.VerifyTestMain(natstest.Parallel(m, 4), goleak.Cleanup(func(code int) {
		outboxtest.Stop()
		os.Exit(code)
	}))
}
