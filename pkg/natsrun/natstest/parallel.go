package natstest

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
)

// Parallel has n parallel tests of a package run at the same time on each core, and not one,
// unless -parallel says how many. It is for packages whose tests wait for most of their time:
//
//	func TestMain(m *testing.M) { os.Exit(natstest.Parallel(m, 4).Run()) }
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
