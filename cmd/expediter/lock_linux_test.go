package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// lockPlace is a server on which expediter lock runs.
type lockPlace struct {
	*testing.T

	srv *natsrun.Server
}

func newLockPlace(t *testing.T) lockPlace {
	t.Helper()
	p := lockPlace{t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })}
	_, js := natstest.Connect(t, p.srv)
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: "locks"}))
	streams := contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, streams, provision.Options{})))
	return p
}

// locking is a process of expediter.
type locking struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	rest   string // of the standard output, when it has ended
	stderr bytes.Buffer
}

// start starts expediter with these arguments.
func (p lockPlace) start(args ...string) *locking {
	p.Helper()
	return p.startAs("expediter", args...)
}

// startAs starts a program that becomes expediter. It is killed when it does not end.
func (p lockPlace) startAs(program string, args ...string) *locking {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	p.Cleanup(cancel)
	l := &locking{t: p.T, cmd: exec.CommandContext(ctx, program, args...)}
	l.cmd.Env, l.cmd.Stderr = append(os.Environ(), "NATS_URL="+p.srv.URL()), &l.stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	stdout := check.Must(l.cmd.StdoutPipe())(p)
	l.stdout = bufio.NewReader(stdout)
	check.OK(p, l.cmd.Start())
	return l
}

// lock starts expediter lock with a script for a shell.
func (p lockPlace) lock(script string, args ...string) *locking {
	p.Helper()
	return p.start(append(append([]string{"lock"}, args...), "--", "sh", "-c", script)...)
}

// line returns the next line of the standard output.
func (l *locking) line() string {
	l.t.Helper()
	line, err := l.stdout.ReadString('\n')
	if err != nil {
		l.t.Fatalf("it ended: %v, %v\n%s", err, l.cmd.Wait(), l.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// pid returns a process id that is the next line.
func (l *locking) pid() int {
	l.t.Helper()
	pid := check.Must(strconv.Atoi(l.line()))(l.t)
	return pid
}

func (l *locking) signal(s os.Signal) {
	l.t.Helper()
	check.OK(l.t, l.cmd.Process.Signal(s))
}

// exits waits for the end, and checks the exit code and that the standard error has a text.
func (l *locking) exits(code int, stderr string) {
	l.t.Helper()
	rest, err := io.ReadAll(l.stdout)
	check.ErrorIs(l.t, err, nil)
	l.rest = string(rest)
	if got := exitCode(l.t, l.cmd.Wait()); got != code {
		l.t.Errorf("%v exits with %d, want %d:\n%s", l.cmd.Args[1:], got, code, l.stderr.String())
	}
	check.Contains(l.t, l.stderr.String(), stderr)
}

// alive reports whether a process runs.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The command of a killed process is killed too, and the lock is free after its TTL.
func TestCommandOfAKilledProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	holder := p.lock("echo $$; exec sleep 600", "x", "--ttl", "2s")
	pid := holder.pid()
	holder.signal(os.Kill)
	holder.exits(-1, "")
	p.lock("true", "x").exits(0, "")
	check.That(t, !alive(pid), "the command of the killed holder runs")
}

// awaitWaiters waits until a lock is held and has waiters.
func (p lockPlace) awaitWaiters(name string, n int) {
	p.Helper()
	want := fmt.Sprintf(`"waiters":%d,"queue"`, n)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		shown := p.start("locks", "list", "-o", "jsonl")
		line, err := io.ReadAll(shown.stdout)
		if err := errors.Join(err, shown.cmd.Wait()); err == nil && strings.Contains(string(line), want) {
			return
		}
	}
	p.Fatalf("the lock %s never had %d waiters", name, n)
}

// A command whose lock is stolen, or not renewed any more, gets SIGTERM, and the exit code says that the lock was lost.
func TestCommandGetsSIGTERMWhenItsLockIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(lockPlace){
		"stolen":      func(p lockPlace) { p.start("locks", "steal", "x", "--yes").exits(0, "") },
		"not renewed": func(p lockPlace) { p.srv.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newLockPlace(t)
			holder := p.lock("trap 'echo terminated; exit 3' TERM; echo started; while :; do sleep 0.05; done", "x", "--ttl", "2s", "--grace", "1m")
			holder.line()
			lose(p)
			check.Equal(t, holder.line(), "terminated", "the command says")
			holder.exits(75, "the lock was lost before the command had ended, with 3")
		})
	}
}

// A command that ignores SIGTERM is killed after the grace, with all its descendants.
func TestCommandIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	holder := p.lock(`trap '' TERM; sh -c 'echo $$; sleep 600; :' & wait`, "x", "--grace", "300ms")
	descendant := holder.pid()
	p.start("locks", "steal", "x", "--yes").exits(0, "")
	holder.exits(75, "with 137")
	check.That(t, !alive(descendant), "a descendant runs")
}

// A descendant that outlives the command of a lost lock has until the end of the grace.
func TestDescendantsHaveTheGraceToo(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	dir := t.TempDir()
	holder := p.lock(`cd `+dir+`; sh -c 'trap "sleep 0.3; touch cleaned; exit" TERM; touch started; while :; do sleep 0.05; done' >/dev/null 2>&1 &
		until test -e started; do sleep 0.05; done; echo started; wait`, "x", "--grace", "1m")
	holder.line()
	p.start("locks", "steal", "x", "--yes").exits(0, "")
	holder.exits(75, "with 143")
	check.ErrorIs(t, check.Err(os.Stat(filepath.Join(dir, "cleaned"))), nil)
}

// Signals are passed on to the command, and its exit code is that of expediter. Then the lock is free.
func TestSignalsArePassedOnToTheCommand(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	// Under nohup, or in the background of a script, the test was started to ignore some of them, and so would its children be.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	defer signal.Stop(caught)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		caught := p.lock(fmt.Sprintf("trap 'exit 40' %d; echo started; while :; do sleep 0.05; done", s), "x")
		caught.line()
		caught.signal(s)
		caught.exits(40, "")
		ended := p.lock("echo started; exec sleep 600", "x", "--wait", "0")
		ended.line()
		ended.signal(s)
		ended.exits(128+int(s), "")
	}
	p.start("locks", "steal", "x").exits(3, `the lock "x" is free`)
}

// A signal that expediter was started to ignore, as by nohup, does not end the command.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	l := p.startAs("sh", "-c", `trap "" HUP; exec expediter lock x -- sh -c "echo started; exec sleep 600"`)
	l.line()
	l.signal(syscall.SIGHUP)
	l.signal(syscall.SIGTERM)
	l.exits(143, "")
}

// A signal ends the wait for a lock, and the place in the queue.
func TestSignalEndsTheWaitForALock(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	holder := p.lock("echo started; exec sleep 600", "x")
	holder.line()
	waiter := p.lock("echo ran", "x")
	p.awaitWaiters("x", 1)
	waiter.signal(syscall.SIGTERM)
	waiter.exits(143, "terminated while waiting for the lock")
	check.Equal(t, waiter.rest, "", "the command ran")
	holder.signal(syscall.SIGTERM)
	holder.exits(143, "")
	p.lock("echo mine", "x", "--wait", "0").exits(0, "")
}

// On a terminal the command reads its input, and Ctrl-C interrupts it once: expediter does not pass on the signal that the
// terminal sends to both.
func TestCommandOnATerminal(t *testing.T) {
	t.Parallel()
	p := newLockPlace(t)
	keyboard, terminal := openTerminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "expediter", "lock", "x", "--", "sh", "-c",
		`n=0; trap 'n=$((n + 1)); echo interrupted' INT; trap 'exit 3' TERM; echo started
		while :; do if read line; then sleep 0.2; echo "$n interrupts, $line"; fi; done`)
	cmd.Env = append(os.Environ(), "NATS_URL="+p.srv.URL())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true, Setsid: true}
	check.OK(t, cmd.Start())
	check.OK(t, terminal.Close()) // reading ends when the processes do
	screen := bufio.NewReader(keyboard)
	see := func(want string) {
		t.Helper()
		for line := ""; !strings.HasSuffix(line, want); {
			var err error
			line, err = screen.ReadString('\n')
			check.Require(t, err == nil, "it ended before %q: %v", want, err)
			line = strings.TrimSpace(line)
		}
	}
	press := func(keys string) {
		t.Helper()
		check.OK(t, check.Err(keyboard.WriteString(keys)))
	}
	send := func(s syscall.Signal) {
		t.Helper()
		check.OK(t, cmd.Process.Signal(s))
	}
	see("started")
	send(syscall.SIGINT)
	press("before\n")
	see("0 interrupts, before")
	press("\x03")
	see("interrupted")
	press("after\n")
	see("1 interrupts, after")
	send(syscall.SIGTERM)
	check.Equal(t, exitCode(t, cmd.Wait()), 3, "it exits with")
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		file := check.Must(os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0))(t)
		t.Cleanup(func() { file.Close() }) // perhaps again
		return file
	}
	keyboard = open("/dev/ptmx")
	check.OK(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n := check.Must(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN))(t)
	return keyboard, open(fmt.Sprint("/dev/pts/", n))
}
