package importer

import (
	"flag"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

var (
	long = flag.Bool("long", false, "500 imports of videos, with a worker killed at each point, instead of a few")
	seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(natstest.Parallel(m, 4))
}
