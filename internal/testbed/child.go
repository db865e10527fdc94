package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/internal/process"
)

const (
	// env has the role of a child.
	env = "NATSTEST_CHILD"

	// stopGrace is the time in which a child has to end by itself.
	stopGrace = 30 * time.Second

	// keptOutput is the number of bytes of a child's standard error that are kept.
	keptOutput = 4 << 10
)

// Process is a child. It does not outlive its parent. Its standard output is kept.
type Process struct {
	// Gone is closed when the process has ended and its output has been read.
	Gone chan struct{}

	run  *process.Process
	said *tail

	mu   sync.Mutex
	more chan struct{} // closed when there is more to read
	next int           // the position of the next line
	text []byte
}

// Role returns the role of this process, "" if it is not a child.
func Role() string { return os.Getenv(env) }

// Start runs this executable with args in a role, and passes it task as JSON. The child's standard error is written to
// log, which is t.Output of a test.
func Start(log io.Writer, role string, task any, args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), env+"="+role)
	p, err := Command(log, cmd)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.run.In).Encode(task); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over the task: %w", err), p.Kill())
	}
	return p, nil
}

// Command is Start for any other program.
func Command(log io.Writer, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Gone: make(chan struct{}), more: make(chan struct{}), said: &tail{}}
	cmd.Stderr = io.MultiWriter(p.said, log)
	var err error
	if p.run, err = process.Start(cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.Gone)
		_, _ = io.Copy((*output)(p), p.run.Out) // a killed process may leave half a line
		_ = p.run.Out.Close()                   // it was read
		<-p.run.Gone
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.more)
		p.more = nil
	}()
	return p, nil
}

// output is the standard output of a process.
type output Process

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	close(o.more)
	o.more = make(chan struct{})
	return len(b), nil
}

// Line waits for the next line that the child prints. It returns an error when the child has ended without a further line; half a line of
// a killed child does not count.
func (p *Process) Line(ctx context.Context) (string, error) {
	for {
		p.mu.Lock()
		line, _, whole := bytes.Cut(p.text[p.next:], []byte("\n"))
		more := p.more
		if whole {
			p.next += len(line) + 1
		}
		p.mu.Unlock()
		switch {
		case whole:
			return strings.TrimSpace(string(line)), nil
		case more == nil:
			return "", fmt.Errorf("the child said nothing more: %w: %s", io.EOF, p.said)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", fmt.Errorf("the child said nothing more: %w: %s", context.Cause(ctx), p.said)
		}
	}
}

// Output returns all that the child has printed so far, including lines that Line returned.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

// Said returns the end of the child's standard error.
func (p *Process) Said() string { return p.said.String() }

// Input returns the child's standard input, after the task.
func (p *Process) Input() io.Writer { return p.run.In }

// Kill ends the child like a crash (SIGKILL), and returns when the child has ended.
func (p *Process) Kill() error {
	err := p.run.Kill()
	if err == nil {
		<-p.Gone
	}
	return err
}

// Stop asks the child to end, by the end of its standard input, and kills it if it does not.
func (p *Process) Stop() error {
	_ = p.run.In.Close() // it is gone already
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	return p.Wait(ctx)
}

// Interrupt sends the child an interrupt, as Ctrl-C does.
func (p *Process) Interrupt() error { return p.run.Interrupt() }

// Wait waits for the end of the child. If the child failed it returns an error with the child's standard error. The
// child is killed when ctx ends.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.Gone:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("it did not end: %w: %s", context.Cause(ctx), p.said), p.Kill())
	}
	if p.run.Err != nil {
		return fmt.Errorf("it ended: %w: %s", p.run.Err, p.said)
	}
	return nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.run.PID() }

// Killed waits for the end of the child. Unless the child was killed, by itself or by another process, it returns an
// error with the child's standard error. The child is killed when ctx ends.
func (p *Process) Killed(ctx context.Context) error {
	err := p.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return err
	case p.run.Killed():
		return nil
	case err == nil:
		return errors.New("it ended without an error, and was not killed")
	default:
		return err
	}
}

// Pause pauses the child (SIGSTOP), or continues it (SIGCONT). Nothing else continues it.
func (p *Process) Pause(on bool) error { return p.run.Pause(on) }

// Die ends this process like a crash. It does not return.
func Die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // a process is always allowed to kill itself
	}
	select {}
}

// DieAt returns a function that ends this process like a crash when it is called with point for the n-th time.
func DieAt(point string, n int) func(string) {
	var passed atomic.Int64
	return func(at string) {
		if at == point && passed.Add(1) == int64(n) {
			Die()
		}
	}
}

// Main runs do in a child with this role, with the task that was passed to Start, and exits. The
// context ends when the parent asks the child to stop, or has ended. In any other process Main
// returns at once.
func Main[T any](role string, do func(ctx context.Context, task T) error) {
	if Role() != role {
		return
	}
	var task T
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin) // it ends in any case
		}()
		err = do(ctx, task)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// tail keeps the last bytes that are written to it.
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

// String returns the kept bytes.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
