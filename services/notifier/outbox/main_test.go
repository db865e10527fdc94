package outbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(child(text))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stopPostgres()
		os.Exit(code)
	}))
}
