package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// On a terminal the command reads its input, and Ctrl-C interrupts it once: expediter does not pass on what the terminal sends to
// both.
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
	if err := terminal.Close(); err != nil { // reading ends when the processes do
		t.Fatal(err)
	}
	screen := bufio.NewReader(keyboard)
	see := func(want string) {
		t.Helper()
		for line := ""; !strings.HasSuffix(line, want); {
			var err error
			if line, err = screen.ReadString('\n'); err != nil {
				t.Fatalf("it ended before %q: %v", want, err)
			}
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
	check.Same(t, "it exits with", exitCode(t, cmd.Wait()), 3)
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
		check.OK(t, err)
		t.Cleanup(func() { file.Close() }) // perhaps again
		return file
	}
	keyboard = open("/dev/ptmx")
	check.OK(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	check.OK(t, err)
	return keyboard, open(fmt.Sprint("/dev/pts/", n))
}
