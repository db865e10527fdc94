// Package child runs this executable once more, as a process that can be killed.
// A test binary calls [Main] for each of its roles first thing in TestMain.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/internal/process"
)

const (
	// env holds, in a child, what it is to do.
	env = "NATSTEST_CHILD"

	// stopGrace is how long a child may take to end by itself.
	stopGrace = 30 * time.Second

	// keptOutput is how much of a child's standard error is kept.
	keptOutput = 4 << 10
)

// Process is a child. It does not outlive its parent.
type Process struct {
	// Gone is closed when the process has ended.
	Gone chan struct{}

	cmd   *exec.Cmd
	err   error
	in    io.WriteCloser
	lines *bufio.Reader
	out   *os.File
	said  *tail
}

// Role is what this process is to do: "" for one that is nobody's child.
func Role() string { return os.Getenv(env) }

// Start runs this executable with args in a role, and hands it task as JSON. What the child writes to its standard error is
// written to log, which is t.Output of a test.
func Start(log io.Writer, role string, task any, args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}

	p := &Process{Gone: make(chan struct{}), said: &tail{}}
	p.cmd = exec.Command(exe, args...) //nolint:gosec,noctx // this very program; its owner ends it
	p.cmd.Env = append(os.Environ(), env+"="+role)
	p.cmd.Stderr = io.MultiWriter(p.said, log)
	process.Bind(p.cmd)

	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe to the child: %w", err)
	}

	reader, writer, err := os.Pipe() // not StdoutPipe: Wait, which runs at the same time, would close it
	if err != nil {
		return nil, fmt.Errorf("pipe from the child: %w", err)
	}

	p.cmd.Stdout, p.out, p.lines = writer, reader, bufio.NewReader(reader)

	err = p.begin()
	_ = writer.Close() //nolint:errcheck // the child has its own handle

	if err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", exe, err), reader.Close())
	}

	if err := json.NewEncoder(p.in).Encode(task); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over the task: %w", err), p.Kill())
	}

	return p, nil
}

// begin starts the process from a thread that lives as long: the kernel sends the signal
// that a parent died when the thread ends that made the child.
func (p *Process) begin() error {
	started := make(chan error, 1)

	go func() {
		defer close(p.Gone)

		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		err := p.cmd.Start()
		started <- err

		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()

	return <-started
}

// Line waits for the next line that the child prints.
func (p *Process) Line(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.out.Close() }) //nolint:errcheck // it ends the read
	defer stop()

	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the child said nothing more: %w: %s", errors.Join(err, ctx.Err()), p.said)
	}

	return strings.TrimSpace(line), nil
}

// Said returns the end of what it wrote to its standard error.
func (p *Process) Said() string { return p.said.String() }

// Kill ends it as a crash does (SIGKILL), and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}

	p.end()

	return nil
}

// Stop asks it to end, by the end of its standard input, and kills it if it does not.
func (p *Process) Stop() error {
	_ = p.in.Close() //nolint:errcheck // it is gone already

	timer := time.NewTimer(stopGrace)
	defer timer.Stop()

	select {
	case <-p.Gone:
	case <-timer.C:
		return errors.Join(fmt.Errorf("it did not end within %s: %s", stopGrace, p.said), p.Kill())
	}

	p.end()

	if p.err != nil {
		return fmt.Errorf("%w: %s", p.err, p.said)
	}

	return nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Killed waits for its end, and returns an error that says what it wrote unless it was
// killed, by itself or by another. It is killed when ctx ends.
func (p *Process) Killed(ctx context.Context) error {
	select {
	case <-p.Gone:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("it did not die: %w: %s", context.Cause(ctx), p.said), p.Kill())
	}

	p.end()

	if !killed(p.err) {
		return fmt.Errorf("it ended with %s, not by a kill: %s", p.cmd.ProcessState, p.said)
	}

	return nil
}

// Pause stops its clock (SIGSTOP), or lets it go on (SIGCONT). Nobody else lets it go on.
func (p *Process) Pause(on bool) error { return process.Pause(p.cmd.Process, on) }

// end waits for its end and lets go of the pipes.
func (p *Process) end() {
	<-p.Gone

	_ = p.in.Close()  //nolint:errcheck // nobody reads it any more
	_ = p.out.Close() //nolint:errcheck // nobody reads it any more
}

// Die ends this process as a crash does. It does not return.
func Die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() //nolint:errcheck // it cannot fail for oneself
	}

	select {}
}

// DieAt returns a function that ends this process as a crash does when it is called with a
// point for the n-th time.
func DieAt(point string, n int) func(string) {
	var passed atomic.Int64

	return func(at string) {
		if at == point && passed.Add(1) == int64(n) {
			Die()
		}
	}
}

// Task reads, in a child, what Start handed over, and returns a context that ends when the
// parent asks it to stop, or is gone.
func Task(task any) (context.Context, error) {
	in := bufio.NewReader(os.Stdin)

	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, task)
	}

	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the first of this process

	go func() {
		defer cancel()

		_, _ = io.Copy(io.Discard, in) //nolint:errcheck // it ends in any case
	}()

	return ctx, nil
}

// Main runs, in a child with this role, what it is there for, and exits. In any other
// process it returns at once.
func Main[T any](role string, do func(ctx context.Context, task T) error) {
	if Role() != role {
		return
	}

	var task T

	ctx, err := Task(&task)
	if err == nil {
		err = do(ctx, task)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // the child is this whole process
	}

	os.Exit(0) //nolint:revive // the child is this whole process
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-keptOutput):]

	return len(b), nil
}

// String returns what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return strings.TrimSpace(string(t.text))
}
