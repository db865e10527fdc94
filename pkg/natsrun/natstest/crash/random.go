package crash

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	long = flag.Bool("long", false, "run the long form of tests that have one")
	seed = flag.Uint64("seed", 0, "make the choices of the run with this seed; 0 takes one at random")
)

// Long reports whether the long form of a test is asked for, with -long.
func Long() bool { return *long }

// Seed returns the seed of a test's random choices: that of -seed, or a new one. It prints the command that makes the
// same choices again.
func Seed(t testing.TB) uint64 {
	t.Helper()

	s := *seed
	if s == 0 {
		s = rand.Uint64() //nolint:gosec // it is printed
	}

	t.Logf("the same choices again: -run '^%s$' -args -seed %d", t.Name(), s)

	return s
}

// Random returns the generators of a test's random choices by number, each with a sequence of its own: see Seed.
func Random(t testing.TB) (of func(sequence uint64) *rand.Rand) {
	t.Helper()
	s := Seed(t)

	return func(sequence uint64) *rand.Rand { return rand.New(rand.NewPCG(s, sequence)) } //nolint:gosec // repeatable
}
