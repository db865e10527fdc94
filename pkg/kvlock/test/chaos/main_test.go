// Package chaos_test takes locks, changes what they guard and computes keys in processes of their own, while the
// processes are killed and frozen, cut off in one direction, and their servers paused, killed and deposed. What all of
// them saw together is then checked: against models of a lock and of a fenced register, for results that were accepted,
// and for waiters that were left behind.
//
// Every process writes down what it does with the machine's one monotonic clock, so that "at once" means the same to all
// of them. The choices of a run come from its seed, which it prints; the machine's scheduling does not.
package chaos_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
)

var (
	long = flag.Bool("long", false, "run minutes of faults instead of seconds")
	seed = flag.Uint64("seed", 0, "make the choices of the run with this seed; 0 takes one at random")
)

func TestMain(m *testing.M) {
	natsrun.NodeMain()
	serverMain()
	workerMain()
	goleak.VerifyTestMain(natstest.Parallel(m, 4))
}

// choices returns what a run decides with, and says how to have the same again.
func choices(t *testing.T) (of func(stream uint64) *rand.Rand) {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("the same choices again: -run '^%s$' -seed %d", t.Name(), s)
	return func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s, stream)) }
}
