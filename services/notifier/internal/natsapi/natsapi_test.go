package natsapi_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/natsapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryEndpointSaysWhatItTakesAndGives(t *testing.T) {
	t.Parallel()
	for _, e := range natsapi.Endpoints(nil) {
		check.That(t, e.Takes != "" && e.Gives != "", "%s takes %q and gives %q", e.Name, e.Takes, e.Gives)
	}
}
