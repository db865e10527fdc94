// Package terminal writes tables and lines, and runs commands.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// ErrNotStarted is returned when the program could not be started.
var ErrNotStarted = errors.New("the command could not be started")

// Command is a program that runs for as long as a lease is held.
type Command struct {
	Args    []string         // the program and its arguments
	Env     []string         // as in exec.Cmd
	Grace   time.Duration    // from SIGTERM to SIGKILL once the lease has ended
	Signals <-chan os.Signal // passed on to the program

	// Stdin, Stdout and Stderr are passed to the program directly when they are files. Each defaults to the null device.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Run runs the program and returns its exit code, or 128 plus the number of the signal that ended it. When held ends,
// the program gets SIGTERM, and SIGKILL after Command.Grace.
//
// On Linux the program and its descendants are in their own process group, which gets all signals, and the kernel kills
// the program when this process dies. After held has ended, Run returns when no process of the group is left. In the
// foreground of a terminal the program stays in the group of this process, so that it can read from the terminal and gets the
// terminal's SIGINT and SIGQUIT. Then other signals go to the program alone, as on other systems.
func Run(held context.Context, cfg Command) (code int, err error) {
	cmd := exec.Command(cfg.Args[0], cfg.Args[1:]...) //nolint:noctx // the caller names the program; held ends it in its own way
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = cfg.Env, cfg.Stdin, cfg.Stdout, cfg.Stderr
	p := newProcess(cmd)
	runtime.LockOSThread() // the kernel kills the program when the thread that has started it ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var kill <-chan time.Time
	var deadline time.Time
	for over := held.Done(); ; {
		select {
		case err := <-ended:
			if over == nil {
				p.endRest(deadline)
			}
			if _, ok := errors.AsType[*exec.ExitError](err); !ok && err != nil {
				return 0, fmt.Errorf("wait for the command: %w", err)
			}
			return exitCode(cmd.ProcessState), nil
		case s := <-cfg.Signals:
			p.pass(s)
		case <-over:
			over, deadline, kill = nil, time.Now().Add(cfg.Grace), time.After(cfg.Grace)
			p.signal(syscall.SIGTERM)
		case <-kill:
			p.signal(syscall.SIGKILL)
		}
	}
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return SignalCode(status.Signal())
	}
	return state.ExitCode()
}

// SignalCode returns the exit code of a program that a signal ended.
func SignalCode(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}
