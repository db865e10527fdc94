package crash

import (
	"context"
	"flag"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// shown is the number of bytes of a process's output in the log of a failed test.
const shown = 4 << 10

// Process is a process of a test.
type Process struct {
	*testbed.Process

	t    testing.TB
	name string // in messages
}

// Start starts cmd, which may be any program, and kills it when the test ends. It sets cmd's standard input, output and
// error. With -short it skips the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	skipShort(t)
	p, err := testbed.Command(t.Output(), cmd)
	return started(t, strings.Join(cmd.Args, " "), p, err)
}

// skipShort skips a test of other processes with -short, as in runs under the race detector: it would read no report of theirs.
func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: not with -short")
	}
}

// started kills a process when the test ends, or fails the test with the error of its start.
func started(t testing.TB, name string, p *testbed.Process, err error) *Process {
	t.Helper()
	check.Require(t, err == nil, "start %s: %v", name, err)
	t.Cleanup(func() {
		check.ErrorIs(t, p.Kill(), nil)
		if out := p.Output(); t.Failed() && out != "" {
			t.Logf("%s printed %d bytes, at the end:\n%s", name, len(out), out[max(0, len(out)-shown):])
		}
	})
	return &Process{Process: p, t: t, name: name}
}

// Line waits for the next line that the process prints. The test fails when there is no further line.
func (p *Process) Line() string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	line, err := p.Process.Line(ctx)
	check.Require(p.t, err == nil, "%s: %v", p.name, err)
	return line
}

// Await waits for the next line that matches a regular expression, skips those before it, and returns the match and its groups.
func (p *Process) Await(pattern string) []string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	for {
		line, err := p.Process.Line(ctx)
		check.Require(p.t, err == nil, "%s has not printed %s: %v", p.name, pattern, err)
		if match := expression.FindStringSubmatch(line); match != nil {
			return match
		}
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Gone:
		return true
	default:
		return false
	}
}

// Kill ends the process like a crash (SIGKILL), even if it is paused, and returns when it has ended.
func (p *Process) Kill() {
	p.t.Helper()
	p.check("kill", p.Process.Kill())
}

// Died waits for the end of the process, and fails the test unless the process was killed, by itself or by another.
func (p *Process) Died() {
	p.t.Helper()
	p.end("death of", p.Killed)
}

// Wait waits until the process ends by itself, and fails the test unless it does so without an error.
func (p *Process) Wait() {
	p.t.Helper()
	p.end("end of", p.Process.Wait)
}

func (p *Process) end(verb string, wait func(context.Context) error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	p.check(verb, wait(ctx))
}

// Stop asks the process to end, by the end of its standard input. The test fails unless it ends without an error.
func (p *Process) Stop() {
	p.t.Helper()
	p.check("stop", p.Process.Stop())
}

// Interrupt asks the process to end, as Ctrl-C does. The test fails unless it ends without an error.
func (p *Process) Interrupt() {
	p.t.Helper()
	p.check("interrupt", p.Process.Interrupt())
	p.Wait()
}

// Pause pauses the process (SIGSTOP).
func (p *Process) Pause() {
	p.t.Helper()
	p.check("pause", p.Process.Pause(true))
}

// Continue continues a paused process.
func (p *Process) Continue() {
	p.t.Helper()
	p.check("continue", p.Process.Pause(false))
}

func (p *Process) check(do string, err error) {
	p.t.Helper()
	check.That(p.t, err == nil, "%s %s: %v", do, p.name, err)
}

var (
	long = flag.Bool("long", false, "run the long form of tests that have one")
	seed = flag.Uint64("seed", 0, "make the choices of the run with this seed; 0 takes one at random")
)

// Long reports whether -long asks for the long form of a test.
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

// Random returns the generators of a test's random choices by number, each with its own sequence: see Seed.
func Random(t testing.TB) (of func(sequence uint64) *rand.Rand) {
	t.Helper()
	s := Seed(t)
	return func(sequence uint64) *rand.Rand { return rand.New(rand.NewPCG(s, sequence)) } //nolint:gosec // repeatable
}
