package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// waitForPipes is how long output is still read after all processes have been killed.
const waitForPipes = 2 * time.Second

var (
	// ErrTimeout is returned when a program ran longer than it may; it has been killed.
	ErrTimeout = errors.New("program: it took too long and was killed")
	// ErrOutput is returned when a program printed more than it may; it has been killed.
	ErrOutput = errors.New("program: it printed too much and was killed")
)

// Command is a program to run. All fields but Args are required.
type Command struct {
	// Path is the program.
	Path string
	// Args are its arguments.
	Args []string
	// Dir is where it runs.
	Dir string
	// Env is all of its environment.
	Env []string
	// Timeout bounds how long it runs.
	Timeout time.Duration
	// MaxStdout is how much it may print. Of its errors the last 64 KiB are kept.
	MaxStdout int
	// MaxFile bounds each file that it writes, and MaxMemory the memory that each of its processes allocates, in bytes, on Linux,
	// where they count in units of 512 and 1024 bytes. Each process may use the processor for Timeout as well.
	MaxFile, MaxMemory int64
}

// Result is the outcome of a program.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is -1 when it was killed here, and 128 and the signal's number when another signal ended it.
	ExitCode int
}

// Run runs a program in a process group of its own. When it returns, the whole group is gone: it is killed when the program
// ends, when ctx ends, after the timeout, and when it prints too much. On Linux the whole group also dies with this process,
// however that ends.
//
// The error is nil when the program ran to its end, with any exit code, and all that it printed was read. The result is
// never nil.
func Run(ctx context.Context, c Command) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return &Result{ExitCode: -1}, context.Cause(ctx)
	}
	if _, err := exec.LookPath(c.Path); err != nil {
		return &Result{ExitCode: -1}, fmt.Errorf("program: find %s: %w", c.Path, err)
	}
	cmd := command(c)
	cmd.Dir, cmd.Env, cmd.WaitDelay = c.Dir, c.Env, waitForPipes
	stdout, stderr := &head{max: c.MaxStdout, over: make(chan struct{})}, &tail{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// The kernel kills the program when the thread that started it ends, so this one has to last.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return &Result{ExitCode: -1}, fmt.Errorf("program: start %s: %w", c.Path, err)
	}
	limit(cmd, c)
	err := watch(ctx, cmd.Process.Pid, stdout.over)
	waitErr := cmd.Wait()
	if err == nil && (cmd.ProcessState == nil || errors.Is(waitErr, exec.ErrWaitDelay)) { // there may be more in the pipes
		err = fmt.Errorf("program: wait for %s: %w", c.Path, waitErr)
	}
	select {
	case <-stdout.over: // by bytes that were still in the pipe
		err = errors.Join(err, ErrOutput)
	default:
	}
	return &Result{Stdout: stdout.data, Stderr: stderr.last(), ExitCode: cmd.ProcessState.ExitCode()}, err
}

// watch waits until a program ends, or kills it, and then kills its group. The program is not reaped yet when that
// happens, so that its number still belongs to it.
func watch(ctx context.Context, pid int, over <-chan struct{}) error {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		waitForExit(pid)
	}()
	var err error
	select {
	case <-exited:
	case <-over:
		err = nil // said by the caller
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	kill(pid)
	<-exited
	kill(pid) // processes that were started between the two
	return err
}

// head keeps the start of an output and says when there is more.
type head struct {
	data []byte
	max  int
	over chan struct{}
	done bool
}

// Write implements io.Writer. It takes everything, so that the program is not stopped by a full pipe before it is killed.
func (h *head) Write(p []byte) (int, error) {
	keep := min(len(p), h.max-len(h.data))
	h.data = append(h.data, p[:keep]...)
	if keep < len(p) && !h.done {
		h.done = true
		close(h.over)
	}
	return len(p), nil
}

// tail keeps the end of an output.
type tail struct {
	data []byte
	max  int
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 4*t.max {
		t.data = append(t.data[:0], t.last()...)
	}
	return len(p), nil
}

func (t *tail) last() []byte { return t.data[max(0, len(t.data)-t.max):] }

// prefix begins the names of all folders, so that nothing else is ever removed.
const prefix = "job-"

// Folders makes temporary folders under one folder, and removes those that a process has left that did not end well.
type Folders struct{ root string }

// NewFolders makes the root where it is missing and removes the folders under it that no process holds.
func NewFolders(root string) (*Folders, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("program: make the folder for temporary files: %w", err)
	}
	f := &Folders{root: root}
	if err := f.sweep(); err != nil {
		return nil, err
	}
	return f, nil
}

// sweep removes the folders that belong to no living process.
func (f *Folders) sweep() error {
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return fmt.Errorf("program: look for old temporary folders: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		dir := filepath.Join(f.root, entry.Name())
		held, err := hold(dir)
		if err != nil {
			continue // a process works in it
		}
		errs = append(errs, os.RemoveAll(dir), held.Close())
	}
	return errors.Join(errs...)
}

// Folder is a temporary folder.
type Folder struct {
	// Path is where it is.
	Path string
	held *os.File
}

// New makes an empty folder. Its name is made of a hash of the job id, which may hold anything, and a random number.
func (f *Folders) New(jobID string) (*Folder, error) {
	sum := sha256.Sum256([]byte(jobID))
	for {
		dir, err := os.MkdirTemp(f.root, prefix+hex.EncodeToString(sum[:8])+"-*")
		if err != nil {
			return nil, fmt.Errorf("program: make a temporary folder: %w", err)
		}
		held, err := hold(dir)
		if err == nil {
			return &Folder{Path: dir, held: held}, nil
		}
		// Another process swept it away before it was held.
		if _, statErr := os.Stat(dir); !errors.Is(statErr, os.ErrNotExist) && !errors.Is(err, errHeld) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// Remove removes the folder and all in it.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	return errors.Join(err, f.held.Close())
}
