package test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
)

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	goleak.VerifyTestMain(natstest.Parallel(m, 4))
}
