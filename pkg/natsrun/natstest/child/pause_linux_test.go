package child_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

const (
	frozenRole = "frozen"
	shellRole  = "shell"
	testRole   = "test"

	// shellEnv says which part a process has that is not made by this package.
	shellEnv = "CHILD_TEST_ROLE"
)

func TestMain(m *testing.M) {
	child.Main(frozenRole, func(ctx context.Context, _ struct{}) error {
		fmt.Println("ready") //nolint:forbidigo // to the test that started this process
		<-ctx.Done()
		return nil
	})
	if role := os.Getenv(shellEnv); role != "" {
		if err := map[string]func() error{shellRole: runShell, testRole: runTest}[role](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runShell acts as a shell that runs a test in the background, as nohup would: the test
// is in a process group of its own, and ignores that the shell ends.
func runShell() error {
	signal.Ignore(syscall.SIGHUP)
	test := part(testRole, os.Stdin, os.Stdout)
	test.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := test.Start(); err != nil {
		return err
	}
	return test.Wait()
}

// runTest freezes a child, says its number, and waits for the end of its input.
func runTest() error {
	p, err := child.Start(os.Stderr, frozenRole, struct{}{})
	if err != nil {
		return err
	}
	if _, err := p.Line(context.Background()); err != nil {
		return err
	}
	if err := p.Pause(true); err != nil {
		return err
	}
	// A process has stopped when all its threads have.
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("it has not stopped: %w: %v", err, status)
	}
	fmt.Println(p.PID()) //nolint:forbidigo // to the test that started this process
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, p.Kill())
}

// part returns this executable in one of the parts.
func part(role string, in, out *os.File) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), shellEnv+"="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	return cmd
}

// The shell that started a test ends while a child of the test is frozen.
func TestPausedChildStaysPausedWhenTheShellEnds(t *testing.T) {
	t.Parallel()
	in, lifeline := pipe(t)
	said, out := pipe(t)
	shell := part(shellRole, in, out)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	check.OK(t, shell.Start())
	_, _ = in.Close(), out.Close()
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	pid := strings.TrimSpace(line)
	check.Is(t, errors.Join(err, shell.Process.Kill()), nil)
	// The kernel has sent all that it sends for the end of a process when that was waited for.
	check.Failsf(t, shell.Wait(), "the shell has ended by itself")
	check.Same(t, "the child is in state after the end of the shell", stateOf(t, pid), "T")
	check.OK(t, lifeline.Close())
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 { // its end is that of the test and its child
		t.Errorf("the test said %q, %v", rest, err)
	}
}

// stateOf returns the kernel's state of a process: the letter after its name.
func stateOf(t *testing.T, pid string) string {
	t.Helper()
	stat := check.Must(os.ReadFile("/proc/" + pid + "/stat"))(t)
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	check.OK(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}
