// Package tutorial_test types the tutorial: it runs the commands of docs/tutorial.md in an empty folder, and looks for the output
// that the tutorial shows.
package tutorial_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
	"github.com/expediter-io/expediter/test/internal/folderproxy"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("SERVE"); folder != "" {
		panic(serve(folder))
	}
	code := m.Run()
	outboxtest.Stop()
	if code == 0 && goleak.Find() != nil {
		code = 1
	}
	os.Exit(code)
}

// shownAt is the page of which a paragraph says that it shows what stands below.
var shownAt = regexp.MustCompile("`(http://[^`]*)`:$")

// patience bounds each wait; it is no measure.
const patience = 4 * time.Minute

func TestTutorial(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles programs for minutes")
	}
	text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md")))(t)
	database := outboxtest.Database(t, testbed.Postgres.Find(t)) // skips first
	bin := t.TempDir()
	ty := &typist{T: t, changed: make(chan struct{}, 1), dir: t.TempDir(), env: append(folderproxy.Env(t, root), "GOBIN="+bin)}
	ty.env = append(ty.env, "PATH="+bin+":"+os.Getenv("PATH"), "DATABASE_URL="+database)
	ty.apart()
	found := fenced.FindAllStringSubmatch(string(text), -1)
	check.Equal(t, 2*len(found), strings.Count(string(text), "\n```"), "fences")
	for _, b := range found {
		before, content := b[1], b[3]
		switch b[2] {
		case "text":
			if found := shownAt.FindStringSubmatch(before); found != nil {
				lines := strings.Split(strings.TrimSpace(content), "\n")
				ty.enter([]string{"until curl --fail -s " + found[1] + " | sed 's/<[^>]*>//g' | tee page | grep -q '" + lines[len(lines)-1] +
					"'; do :; done; cat page"}, false)
			}
			ty.wantAll(content)
		case "go":
			name := strings.TrimSuffix(strings.TrimPrefix(before, "<!-- test/tutorial/testdata/"), ".go -->")
			check.OK(t, os.WriteFile(filepath.Join(ty.dir, name, "main.go"), []byte(content), 0o600))
		default:
			ty.enter(strings.Split(strings.TrimSpace(content), "\n"), strings.Contains(before, "terminal"))
		}
	}
}

// typist types commands in terminals.
type typist struct {
	*testing.T

	changed chan struct{} // gets a value when a screen shows more
	dir     string
	env     []string
	space   []string // what a command begins with in the network of the typist

	mu      sync.Mutex
	screens []*screen
}

// screen is the text on a terminal. Its fields are guarded by the typist's mutex.
type screen struct {
	of   *typist
	text []byte // that was not asked for yet
}

// Write implements [io.Writer].
func (s *screen) Write(p []byte) (int, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.text = append(s.text, p...)
	select {
	case s.of.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

// netAdmin is the capability CAP_NET_ADMIN.
const netAdmin = 12

// apart has the commands in their own network, where all ports are free. It is that of a process, and gone with this one, however it
// ends. Who is not root makes it in a user namespace.
func (ty *typist) apart() {
	ty.Helper()
	of := exec.CommandContext(context.WithoutCancel(ty.Context()), "sh", "-c", "ip link set lo up && echo up && exec cat")
	of.Env, of.Stderr = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin"), ty.Output()
	of.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		of.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		of.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		of.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		of.SysProcAttr.AmbientCaps = []uintptr{netAdmin}
	}
	in, out := check.Must(of.StdinPipe())(ty), check.Must(of.StdoutPipe())(ty)
	err := of.Start()
	if err == nil {
		ty.Cleanup(func() { _, _ = in.Close(), of.Wait() }) // it ends with its input
		_, err = io.ReadFull(out, make([]byte, len("up\n")))
	}
	if err != nil {
		testbed.Refusedf(ty, "no network can be made where the ports of the pages are free: %v", err)
	}
	ty.space = []string{"nsenter", "--preserve-credentials", "--target", strconv.Itoa(of.Process.Pid), "--net"}
	if os.Geteuid() != 0 {
		ty.space = append(ty.space, "--user")
	}
}

// exits is the comment of a command that fails.
var exits = regexp.MustCompile(`# exit code ([0-9]+)`)

// enter runs one command after the other, and waits for each but the last one of a separate terminal.
func (ty *typist) enter(lines []string, stays bool) {
	shown := &screen{of: ty}
	ty.mu.Lock()
	ty.screens = append(ty.screens, shown)
	ty.mu.Unlock()
	for i, line := range lines {
		args := []string{"bash", "-c", line}
		if !strings.HasPrefix(line, "go mod") && !strings.HasPrefix(line, "go install") { // these may need the network
			args = append(slices.Clip(ty.space), args...)
		}
		ctx, cancel := context.WithCancel(ty.Context())
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ty.dir, ty.env, shown, shown
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		check.OK(ty, cmd.Start())
		if stays && i == len(lines)-1 {
			ty.Cleanup(func() {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
				_ = cmd.Wait()                                      // it was killed
				cancel()
			})
			return
		}
		impatience := time.AfterFunc(patience, cancel)
		err, want := cmd.Wait(), "0"
		impatience.Stop()
		cancel()
		if found := exits.FindStringSubmatch(line); found != nil {
			want = found[1]
		}
		check.Require(ty, strconv.Itoa(cmd.ProcessState.ExitCode()) == want, "%s: %v, want the exit code %s\n%s", line, err, want, ty.all())
	}
}

// wantAll waits until each line is shown by a terminal, since it was last called.
func (ty *typist) wantAll(content string) {
	ty.want(content)
	ty.mu.Lock()
	defer ty.mu.Unlock()
	for _, s := range ty.screens {
		s.text = nil
	}
}

// want waits until each line is shown by a terminal.
func (ty *typist) want(content string) {
	enough := time.After(patience)
	for {
		shown, missing := ty.all(), ""
		for line := range strings.Lines(content) {
			if line = strings.TrimSpace(line); !strings.Contains(shown, line) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-ty.changed:
		case <-enough:
			ty.Fatalf("no terminal shows %q:\n%s", missing, shown)
		}
	}
}

// all returns the terminals' texts since the last wait.
func (ty *typist) all() string {
	ty.mu.Lock()
	defer ty.mu.Unlock()
	var all []byte
	for _, s := range ty.screens {
		all = append(all, s.text...)
	}
	return string(all)
}
