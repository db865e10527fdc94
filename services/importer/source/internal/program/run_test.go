package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// shell is a command that runs a script.
func shell(t *testing.T, script string) Command {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("sh is missing: nothing to run")
	}
	return shellIn(t.TempDir(), script)
}

func shellIn(dir, script string) Command {
	return Command{
		Path: "sh", Args: []string{"-c", script}, Dir: dir,
		Timeout: time.Minute, MaxStdout: 1 << 20, MaxFile: 1 << 20, MaxMemory: 64 << 20,
	}
}

// pids reads the process numbers that a script has written into files.
func pids(t *testing.T, dir string, names ...string) []int {
	t.Helper()
	var out []int
	for _, name := range names {
		data := check.Must(os.ReadFile(filepath.Join(dir, name)))(t)
		pid := check.Must(strconv.Atoi(strings.TrimSpace(string(data))))(t)
		out = append(out, pid)
	}
	return out
}

// wantGone waits until a process has ended. One that was killed may not have been reaped yet by its new parent.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	check.Until(t, time.Minute, fmt.Sprintf("process %d is gone", pid), func() bool {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		_, state, _ := strings.Cut(string(data), ") ")
		return err != nil || strings.HasPrefix(state, "Z")
	})
}

// awaitFile waits until a script has written a file.
func awaitFile(path string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !exists(path) {
		<-ticker.C
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestRunToTheEnd(t *testing.T) {
	t.Parallel()
	result, err := Run(t.Context(), shell(t, `echo out; echo err >&2; echo "$PWD" >&2; exit 3`))
	check.That(t, err == nil && string(result.Stdout) == "out\n" && strings.HasPrefix(string(result.Stderr), "err\n/") && result.ExitCode == 3,
		"result %q, %q, %d, error %v", result.Stdout, result.Stderr, result.ExitCode, err)
}

func TestProcessorTime(t *testing.T) {
	t.Parallel()
	busy := shell(t, `while :; do :; done`)
	busy.MaxCPU = time.Second
	result, err := Run(t.Context(), busy)
	check.ErrorIs(t, err, ErrCPU)
	check.That(t, result.CPU >= time.Second/2, "it used %s", result.CPU)
}

// A program sees nothing of our environment but the paths of programs: a key in it, or a file in the home folder, is out of its reach.
func TestProgramHasItsOwnEnvironment(t *testing.T) {
	t.Setenv("IMPORTER_OPENAI_KEY", "s3cret")
	c := shell(t, `printf '%s %s %s' "$HOME" "$TMPDIR" "$ADDED"; env | grep s3cret`)
	c.Env = []string{"ADDED=added"}
	result := check.Must(Run(t.Context(), c))(t)
	check.Equal(t, string(result.Stdout), c.Dir+" "+c.Dir+" added")
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	c := shell(t, "")
	c.Path = filepath.Join(t.TempDir(), "nothing")
	check.ErrorIs(t, check.Err(Run(t.Context(), c)), os.ErrNotExist)
}

// However a run ends, the program, its child and a grandchild that has left its parent are gone.
func TestNothingIsLeftRunning(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are looked up in /proc, which is missing")
	}
	const family = `trap '' TERM INT HUP
sh -c 'trap "" TERM; (trap "" TERM; echo $$ >/dev/null; sh -c "echo \$\$ > grandchild; exec sleep 1000") & echo $$ > child; wait' &
echo $$ > parent
while [ ! -s grandchild ] || [ ! -s child ]; do sleep 0.01; done
echo ready > ready
`
	for name, test := range map[string]struct {
		end    string
		run    func(ctx context.Context, cancel context.CancelCauseFunc, c *Command)
		reason error
	}{
		"it ends":         {end: "exit 0"},
		"it takes long":   {end: "sleep 1000", run: func(_ context.Context, _ context.CancelCauseFunc, c *Command) { c.Timeout = 5 * time.Second }, reason: ErrTimeout},
		"it prints a lot": {end: "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", reason: ErrOutput},
		"it is cancelled": {end: "sleep 1000", run: func(_ context.Context, cancel context.CancelCauseFunc, c *Command) {
			go func() {
				awaitFile(filepath.Join(c.Dir, "ready"))
				cancel(errStop)
			}()
		}, reason: errStop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := shell(t, family+test.end)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.run != nil {
				test.run(ctx, cancel, &c)
			}
			_, err := Run(ctx, c)
			// A machine may be so slow that the family is not complete when its time is over: then it gets more.
			for more := 2 * c.Timeout; more > 0 && !exists(filepath.Join(c.Dir, "ready")); more *= 2 {
				c = shell(t, family+test.end)
				c.Timeout = more
				_, err = Run(ctx, c)
			}
			check.ErrorIs(t, err, test.reason)
			for _, pid := range pids(t, c.Dir, "parent", "child", "grandchild") {
				wantGone(t, pid)
			}
		})
	}
}

var errStop = errors.New("stop")

// The output does not count as complete when another process still holds it: here one that has left the group.
func TestOutputThatStaysOpen(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is missing: nothing to leave the group with")
	}
	c := shell(t, `setsid sh -c 'echo $$ > left; exec sleep 1000' & while [ ! -s left ]; do sleep 0.01; done; echo some`)
	result, err := Run(t.Context(), c)
	check.That(t, errors.Is(err, exec.ErrWaitDelay) && string(result.Stdout) == "some\n",
		"stdout %q, error %v: want the part, and ErrWaitDelay", result.Stdout, err)
	for _, pid := range pids(t, c.Dir, "left") {
		process := check.Must(os.FindProcess(pid))(t)
		check.OK(t, process.Kill())
		wantGone(t, pid)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	c := shell(t, `i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; printf 0123456789`)
	c.MaxStdout = 10
	result, err := Run(t.Context(), c)
	check.That(t, err == nil && string(result.Stdout) == "0123456789", "stdout %q, error %v: want all that fits", result.Stdout, err)
	if len(result.Stderr) > 64<<10 || !strings.HasSuffix(string(result.Stderr), "line 19999\n") {
		t.Errorf("%d bytes of errors that end in %q: want the last 64 KiB", len(result.Stderr), result.Stderr[max(0, len(result.Stderr)-20):])
	}
	c.MaxStdout = 9
	if result, err := Run(t.Context(), c); !errors.Is(err, ErrOutput) || string(result.Stdout) != "012345678" {
		t.Errorf("stdout %q, error %v: want it cut, and ErrOutput", result.Stdout, err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("files are bounded on Linux only")
	}
	c := shell(t, `trap '' XFSZ; dd if=/dev/zero of=large bs=1024 count=4096 2>/dev/null; exit 0`)
	check.OK(t, check.Err(Run(t.Context(), c)))
	info, err := os.Stat(filepath.Join(c.Dir, "large"))
	check.That(t, err == nil && info.Size() <= c.MaxFile, "file %v, error %v: want %d bytes at most", info, err, c.MaxFile)
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("memory is bounded on Linux only")
	}
	c := shell(t, `x=0123456789abcdef; while [ ${#x} -lt 1000000000 ]; do x=$x$x; done; exit 0`)
	result, err := Run(t.Context(), c)
	check.That(t, err == nil && result.ExitCode != 0, "exit code %d, error %v: want a shell without memory", result.ExitCode, err)
	c.Args[1] = "ulimit -d; ulimit -t"
	result, err = Run(t.Context(), c)
	check.That(t, err == nil && string(result.Stdout) == "65536\n60\n", "limits %q, error %v", result.Stdout, err)
}

// parents are processes that run a program in a folder.
var parents = crash.Role[string]{Name: "parent", Run: func(ctx context.Context, dir string) error {
	_, err := Run(ctx, shellIn(dir, `trap '' TERM; sh -c 'echo $$ > child.new; mv child.new child; exec sleep 1000' &
echo $$ > pid.new; mv pid.new pid; exec sleep 1000`))
	return err
}}

// A program dies with the process that runs it, even when that is killed, and so do the processes that the program started.
func TestProgramDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := shell(t, "").Dir
	parent := parents.Start(t, dir)
	awaitFile(filepath.Join(dir, "pid"))
	awaitFile(filepath.Join(dir, "child"))
	parent.Kill()
	for _, pid := range pids(t, dir, "pid", "child") {
		wantGone(t, pid)
	}
}

func TestMain(m *testing.M) { crash.Main(m, 4, parents) }

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := check.Must(os.ReadDir(dir))(t)
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}

// A job id may hold anything: no folder is made but right below the root, and none of a job is that of another. A root that is missing is
// made for this user alone.
func TestFolderNames(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	folders := check.Must(NewFolders(root, slog.New(slog.DiscardHandler)))(t)
	seen := map[string]bool{root: true}
	var use func(ids ...string)
	use = func(ids ...string) { // each in the folder of the one before, so that all are there at once
		for at := range seen {
			info, err := os.Stat(at)
			check.That(t, err == nil && info.Mode().Perm() == 0o700, "%s: mode %v, error %v", at, info, err)
		}
		if len(ids) == 0 {
			check.Equal(t, len(names(t, root)), len(seen)-1, "folders")
			return
		}
		check.OK(t, folders.Use(t.Context(), ids[0], func(dir string) error {
			check.That(t, filepath.Dir(dir) == root && !seen[dir], "id %.20q: folder %s: want a new one below %s", ids[0], dir, root)
			seen[dir] = true
			use(ids[1:]...)
			return nil
		}))
	}
	use("", "job-1", "job-1", "..", "../../etc", "/etc/passwd", `..\..\x`, "a b", "*", ">", "\x00", "--exec", "עברית", strings.Repeat("x", 10_000))
	check.Equal(t, len(names(t, root)), 0, "folders left")
}

// What a dead process has left is removed at the next start.
func TestOldFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(root, prefix+"left"), 0o700))
	check.OK(t, check.Err(NewFolders(root, slog.New(slog.DiscardHandler))))
	check.Equal(t, len(names(t, root)), 0, "folders left")
}
