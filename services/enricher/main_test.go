package enricher

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Parallel(m, 4)) }
