package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Process is a child of this one. It does not outlive it.
type Process struct {
	In io.WriteCloser // its standard input

	cmd   *exec.Cmd
	done  chan struct{} // closed when it is gone
	lines *bufio.Reader
	said  *tail
}

// StartProcess starts a program with its standard input and output as pipes. What it says on standard error is kept for
// the error that it may end with.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{}), said: &tail{}}
	cmd.Stderr = p.said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = childAttributes()
	}
	var err error
	if p.In, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	reader, writer, err := os.Pipe() // not StdoutPipe: Wait, which runs at the same time, would close it
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	cmd.Stdout = writer
	p.lines = bufio.NewReader(reader)
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		// The kernel kills the child when the thread ends that made it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = writer.Close() //nolint:errcheck // the child has its own
		started <- err
		if err == nil {
			_ = cmd.Wait() //nolint:errcheck // it is killed, mostly
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Line waits for the next line of its output.
func (p *Process) Line(ctx context.Context) (string, error) {
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		line, err := p.lines.ReadString('\n')
		got <- read{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return "", fmt.Errorf("%s ended: %w: %s", p.cmd.Path, r.err, p.said)
		}
		return r.line, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s said nothing: %w: %s", p.cmd.Path, ctx.Err(), p.said)
	}
}

// ResidentBytes is its memory that is in RAM.
func (p *Process) ResidentBytes() int64 { return ResidentBytes(p.cmd.Process.Pid) }

// ResetPeak makes its peak what it has now.
func (p *Process) ResetPeak() { resetPeak(p.cmd.Process.Pid) }

// PeakBytes is the most memory that it had in RAM since ResetPeak.
func (p *Process) PeakBytes() int64 { return peakBytes(p.cmd.Process.Pid) }

// Kill ends it as a crash does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() //nolint:errcheck // it is gone already
	<-p.done
}

// End closes its input, and kills it if it goes on for long.
func (p *Process) End() {
	_ = p.In.Close() //nolint:errcheck // it is gone already
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// startSelf starts this program as something else, which env says.
func startSelf(env string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	cmd := exec.Command(exe) //nolint:gosec,noctx // this very program; it is ended by its owner
	cmd.Env = append(os.Environ(), env+"=1")
	return StartProcess(cmd)
}

// StartTask starts this program as something else, and hands it what to do as JSON.
func StartTask(env string, task any) (*Process, error) {
	p, err := startSelf(env)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.In).Encode(task); err != nil {
		p.Kill()
		return nil, fmt.Errorf("hand over the task: %w", err)
	}
	return p, nil
}

// ChildMain is the life of a process that was started for a task, if this one was.
func ChildMain[T any](env string, do func(ctx context.Context, task T) error) {
	if os.Getenv(env) == "" {
		return
	}
	var task T
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		err = do(context.Background(), task)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ErrMissing says that a program is not installed.
var ErrMissing = errors.New("not installed")

// find returns the path of a program that may not be installed, in one of the folders if it is not in the PATH.
func find(program string, folders ...string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range folders {
		found, _ := filepath.Glob(filepath.Join(pattern, program)) //nolint:errcheck // the patterns are ours
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrMissing, program)
}
