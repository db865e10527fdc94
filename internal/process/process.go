// Package process starts processes that do not outlive this one, and can pause them.
//
// A process that may be paused is in its own process group. In the group of this process it would be continued when the shell that
// started this process ends. When the end of a process leaves a group without a member whose parent is in another group of the session,
// and a member of the group is stopped, the kernel sends SIGHUP and SIGCONT to the whole group. In its own group the process has a
// parent in another group, this process, so only the end of this process has that effect.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// Process is a process that was started with pipes to its standard input and output.
type Process struct {
	Gone chan struct{} // closed when the process has ended
	Err  error         // the error of exec.Cmd.Wait; read it after Gone
	In   io.WriteCloser
	Out  *os.File // stays open after the process has ended, so that its output can be read to the end

	cmd *exec.Cmd
}

// Start starts cmd in its own process group. On Linux the kernel kills the process when this process dies; elsewhere the process has
// to end at the end of its standard input.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Gone: make(chan struct{}), cmd: cmd}
	bind(cmd)
	var err error
	if p.In, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe to the process: %w", err)
	}
	reader, writer, err := os.Pipe() // not StdoutPipe: Wait, which runs at the same time, would close it
	if err != nil {
		return nil, fmt.Errorf("pipe from the process: %w", err)
	}
	cmd.Stdout, p.Out = writer, reader
	started := make(chan error, 1)
	go func() {
		defer close(p.Gone)
		// The kernel kills the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = writer.Close() // the child has its own handle
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", cmd.Path, err), reader.Close())
	}
	return p, nil
}

// Kill ends the process as a crash does (SIGKILL), and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}
	<-p.Gone
	if err := p.In.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close its standard input: %w", err)
	}
	return nil
}

// Pause pauses the process (SIGSTOP), or continues it (SIGCONT). It returns ErrUnsupported on systems without these
// signals.
func (p *Process) Pause(on bool) error { return pause(p.cmd.Process, on) }

// Interrupt asks the process to end, as Ctrl-C does.
func (p *Process) Interrupt() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("send an interrupt: %w", err)
	}
	return nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }
