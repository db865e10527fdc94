package program

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardShell is the path of the shell by POSIX.
const guardShell = "/bin/sh"

// guard is a script that runs a program, and kills it with all processes that it has started when our process ends: the kernel
// signals the end of a parent, but not of a grandparent. The arguments are the bounds of files in units of 512 bytes, of memory in
// units of 1024 bytes, and of processor time in seconds, and the program with its arguments. The bound of memory is on allocated
// memory, because some programs reserve far more address space than they use.
const guard = `trap 'kill -KILL 0' USR1; ulimit -c 0; ulimit -f "$1"; ulimit -d "$2"; ulimit -t "$3"; shift 3; "$@" & wait $!`

// units returns a size in units, as an argument for the shell.
func units(size, unit int64) string { return strconv.FormatInt((size+unit-1)/unit, 10) }

// command makes the process of a program, in its own process group, that dies with our process. Without a shell,
// processes that the program has started survive when our process is killed.
func command(c Command) *exec.Cmd {
	args := append([]string{
		"-c", guard, "guard", units(c.MaxFile, 512), units(c.MaxMemory, 1024), units(int64(c.MaxCPU), int64(time.Second)), c.Path,
	}, c.Args...)
	cmd := exec.Command(guardShell, args...) //nolint:noctx // callers build the arguments; ctx kills the group
	death := syscall.SIGUSR1
	if _, err := os.Stat(guardShell); err != nil {
		cmd, death = exec.Command(c.Path, c.Args...), syscall.SIGKILL //nolint:noctx // see above
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
	return cmd
}

// limit bounds a program that runs without the guard. It ignores a program that has ended.
func limit(cmd *exec.Cmd, c Command) {
	if cmd.Path == guardShell {
		return
	}
	for resource, most := range map[int]int64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_CPU: int64((c.MaxCPU + time.Second - 1) / time.Second), unix.RLIMIT_DATA: c.MaxMemory,
		unix.RLIMIT_FSIZE: c.MaxFile,
	} {
		bound := unix.Rlimit{Cur: uint64(most), Max: uint64(most)}
		_ = unix.Prlimit(cmd.Process.Pid, resource, &bound, nil) // see above
	}
}

// waitForExit waits until a child has ended, and leaves it to be reaped.
func waitForExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill kills a process group, which may be gone already.
func kill(pid int) {
	_ = unix.Kill(-pid, unix.SIGKILL) // see above
}
