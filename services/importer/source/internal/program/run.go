package program

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/expediter-io/expediter/internal/private"
)

// waitForPipes is the time for which output is still read after all processes have been killed.
const waitForPipes = 2 * time.Second

var (
	// ErrTimeout is returned when a program was killed because it ran too long.
	ErrTimeout = errors.New("program: it took too long and was killed")
	// ErrCPU is returned when a program was killed because it used too much processor time.
	ErrCPU = errors.New("program: it used too much processor time and was killed")
	// ErrOutput is returned when a program was killed because it printed too much.
	ErrOutput = errors.New("program: it printed too much and was killed")
)

// Command is a program to run. All fields but Args are required.
type Command struct {
	// Path is the path of the program.
	Path string
	// Args are the arguments of the program.
	Args []string
	// Dir is the working directory, which is also the home folder and has the temporary files.
	Dir string
	// Env is added to the environment, which otherwise holds nothing but the paths of programs, the folder and a language:
	// files in our home folder could configure a program, or load code into it.
	Env []string
	// Timeout bounds the time that the program runs, and MaxCPU the processor time of each of its processes, on Linux only, in whole
	// seconds. MaxCPU defaults to Timeout.
	Timeout, MaxCPU time.Duration
	// MaxStdout bounds the standard output, in bytes. Of the standard error the last 64 KiB are kept.
	MaxStdout int
	// MaxFile bounds each file that the program writes, and MaxMemory the memory that each of its processes allocates, in bytes,
	// on Linux only, in units of 512 and 1024 bytes.
	MaxFile, MaxMemory int64
}

// Result is the outcome of a program.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is -1 when the program was killed here, and 128 plus the signal's number when another signal ended it.
	ExitCode int
	// CPU is the processor time of the program.
	CPU time.Duration
}

// Find returns the absolute path of a program, or an error that wraps exec.ErrNotFound when there is none.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Run runs a program in its own process group. When it returns, the whole group is gone: it is killed when the program
// ends, when ctx ends, after the timeout, and when it prints too much. On Linux the whole group also dies with this process,
// in whatever way it ends.
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
	c.MaxCPU = cmp.Or(c.MaxCPU, c.Timeout)
	cmd := command(c)
	cmd.Dir, cmd.WaitDelay = c.Dir, waitForPipes
	cmd.Env = append([]string{
		"HOME=" + c.Dir, "LANG=C.UTF-8", "PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"), "TMPDIR=" + c.Dir,
	}, c.Env...)
	stdout, stderr := &head{max: c.MaxStdout, over: make(chan struct{})}, &tail{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// The kernel kills the program when the thread that started it ends, so this thread has to last.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return &Result{ExitCode: -1}, fmt.Errorf("program: start %s: %w", c.Path, err)
	}
	limit(cmd, c)
	err := watch(ctx, cmd.Process.Pid, stdout.over)
	waitErr := cmd.Wait()
	if err == nil && (cmd.ProcessState == nil || errors.Is(waitErr, exec.ErrWaitDelay)) { // the pipes may have more output
		err = fmt.Errorf("program: wait for %s: %w", c.Path, waitErr)
	}
	select {
	case <-stdout.over: // by bytes that were still in the pipe
		err = errors.Join(err, ErrOutput)
	default:
	}
	result := &Result{
		Stdout: stdout.data, Stderr: stderr.last(), ExitCode: cmd.ProcessState.ExitCode(),
		CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}
	if err == nil && result.ExitCode != 0 && result.CPU >= c.MaxCPU*4/5 { // the kernel bounds another sum than it reports
		err = ErrCPU
	}
	return result, err
}

// watch waits until a program ends, or kills it, and then kills its group. It kills the group before the program is
// reaped, so that the process id still belongs to the program.
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
		err = nil // the caller returns ErrOutput
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	kill(pid)
	<-exited
	kill(pid) // processes that were started between the two calls
	return err
}

// head keeps the start of an output, and closes a channel when there is more.
type head struct {
	data []byte
	max  int
	over chan struct{}
	done bool
}

// Write implements io.Writer. It accepts everything, so that a full pipe does not stop the program before it is
// killed.
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
const prefix = "expediter-importer-"

// Folders makes temporary folders under one folder, and removes the folders that a crashed process has left.
type Folders struct {
	log  *slog.Logger
	root string
}

// NewFolders removes the folders under the root that dead processes of this user have left. Others may use the same root: each folder is
// this user's alone. A root in which others may exchange folders is refused, and made for this user alone if only itself is missing. The
// log gets folders that cannot be removed.
func NewFolders(root string, log *slog.Logger) (*Folders, error) {
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("program: the folder for temporary files: %w", err)
	}
	if err := private.Sweep(root, prefix); err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	f := &Folders{log: log, root: root}
	if err := f.Use(context.Background(), "start", func(string) error { return nil }); err != nil { //nolint:forbidigo // does not wait
		return nil, err
	}
	return f, nil
}

// Use makes an empty folder, and removes it with all in it when do returns. The folder's name consists of a hash of the job id, which may
// have any characters, and a random number.
func (f *Folders) Use(ctx context.Context, jobID string, do func(dir string) error) error {
	sum := sha256.Sum256([]byte(jobID))
	folder, err := private.Make(f.root, prefix+hex.EncodeToString(sum[:8])+"-")
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	defer func() {
		if err := folder.Remove(); err != nil {
			f.log.ErrorContext(ctx, "cannot remove a temporary folder", "folder", folder.Path, "error", err)
		}
	}()
	return do(folder.Path)
}
