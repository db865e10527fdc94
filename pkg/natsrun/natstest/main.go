package natstest

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Main runs the tests of a package as [Parallel] does, and exits. A goroutine that outlives the tests fails them,
// unless options allow it. A child process that was started as the node of a cluster runs that node instead:
//
//	func TestMain(m *testing.M) { natstest.Main(m, 4) }
func Main(m *testing.M, perCore int, options ...goleak.Option) {
	natsrun.NodeMain()
	goleak.VerifyTestMain(Parallel(m, perCore), options...)
}

// LeakChecked runs the tests of a package; its Run returns the exit code, as testscript.Main wants it. A goroutine that
// outlives the tests fails them.
type LeakChecked struct{ *testing.M }

// Run runs the tests.
func (c LeakChecked) Run() (code int) {
	goleak.VerifyTestMain(c.M, goleak.Cleanup(func(got int) { code = got }))
	return code
}

// Parallel makes n parallel tests of a package run at the same time on each core instead of one, unless -parallel is
// set. It is for packages whose tests wait for most of their time.
func Parallel(m *testing.M, n int) *testing.M {
	const name = "test.parallel"

	asked := false

	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == name }) // if flags have been read

	if asked {
		return m
	}

	if err := flag.Set(name, strconv.Itoa(n*runtime.GOMAXPROCS(0))); err != nil {
		panic(err) // this program has no tests
	}
	return m
}
