package outbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

func TestMain(m *testing.M) {
	child.Main(relayRole, relayAndDie)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stopPostgres()
		os.Exit(code)
	}))
}
