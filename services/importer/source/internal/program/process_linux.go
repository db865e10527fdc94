package program

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardShell is where POSIX has it.
const guardShell = "/bin/sh"

// guard is a script that runs a program and, when the process that runs it ends, kills the program with all that it has
// started: the kernel tells a process of the end of its parent, but not of that of its grandparent. It takes the bound of
// files in units of 512 bytes, and the program with its arguments.
const guard = `trap 'kill -KILL 0' USR1; ulimit -c 0; ulimit -f "$1"; shift; "$@" & wait $!`

const unit = 512

// command makes the process of a program, in a process group of its own, that dies with us. Where there is no shell, what
// the program has started stays when we are killed.
func command(c Command) *exec.Cmd {
	size := strconv.FormatInt((c.MaxFile+unit-1)/unit, 10)
	args := append([]string{"-c", guard, "guard", size, c.Path}, c.Args...)
	cmd := exec.Command(guardShell, args...) //nolint:gosec,noctx // callers build the arguments; ctx kills the group
	death := syscall.SIGUSR1
	if _, err := os.Stat(guardShell); err != nil {
		cmd, death = exec.Command(c.Path, c.Args...), syscall.SIGKILL //nolint:gosec,noctx // see above
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
	return cmd
}

// limit bounds the files that a program writes which has no guard. One that has ended needs no limit.
func limit(cmd *exec.Cmd, size int64) {
	if cmd.Path == guardShell {
		return
	}
	pid := cmd.Process.Pid
	bound := unix.Rlimit{Cur: uint64(size), Max: uint64(size)} //nolint:gosec // sizes are not negative
	_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &bound, nil)      //nolint:errcheck // see above
	none := unix.Rlimit{}
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &none, nil) //nolint:errcheck // see above
}

// waitForExit waits until a child has ended, and leaves it to be reaped.
func waitForExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill kills a process group. That there is none any more is what it is for.
func kill(pid int) {
	_ = unix.Kill(-pid, unix.SIGKILL) //nolint:errcheck // see above
}
