// Package testbed has what the tests of this repository need of a machine: this executable as a process that can be killed,
// programs other than Go, a disk that is full, and the documented metrics.
//
// A test whose program is missing is skipped, or fails if EXPEDITER_REQUIRE_PROGRAMS is set.
package testbed

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// require is the environment variable with which a test without its program fails instead of being skipped.
const require = "EXPEDITER_REQUIRE_PROGRAMS"

// Program is a set of commands that are installed together.
type Program struct {
	commands []string
	folders  string // the folders of the commands, if they are not in the PATH
	name     string
}

// The programs that tests of the workspace need. Add each to .ci/run too.
var (
	HEIF      = Program{name: "heif-convert", commands: []string{"heif-convert", "heif-enc"}}
	NATS      = Program{name: "the nats CLI", commands: []string{"nats"}}
	Node      = Program{name: "Node", commands: []string{"node"}}
	Promtool  = Program{name: "promtool", commands: []string{"promtool"}}
	Postgres  = Program{name: "Postgres", commands: []string{"initdb", "postgres"}, folders: "/usr/lib/postgresql/*/bin"} // of Debian
	Shell     = Program{name: "curl or openssl", commands: []string{"bash", "curl", "openssl"}}
	Tesseract = Program{name: "tesseract", commands: []string{"tesseract"}}
	YtDlp     = Program{name: "yt-dlp", commands: []string{"yt-dlp"}}
)

// Find returns the paths of the program's commands. It skips or fails the test when a command is missing.
func (p Program) Find(t testing.TB) []string {
	t.Helper()
	var paths []string
	for _, command := range p.commands {
		path := p.find(command)
		switch {
		case path != "":
			paths = append(paths, path)
		case os.Getenv(require) != "":
			t.Fatalf("%s is missing, and %s is set", p.name, require)
		default:
			t.Skipf("%s is missing: install it to run this test", p.name)
		}
	}
	return paths
}

// Refusedf skips a test to which the system refuses what it needs. Where EXPEDITER_REQUIRE_PROGRAMS is set it fails the test of root, to
// whom nothing has to be refused.
func Refusedf(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(require) != "" && os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// find returns the path of a command, of the newest version if there are several, or "".
func (p Program) find(command string) string {
	if path, err := exec.LookPath(command); err == nil {
		return path
	}
	if p.folders == "" {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(p.folders, command))
	if err != nil || len(found) == 0 {
		return ""
	}
	return slices.Max(found)
}

// WriteProgram writes a program. No process that this one starts at the same moment inherits the file that is open for writing: the system
// would refuse to run it (golang/go#22315).
func WriteProgram(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o700)
	syscall.ForkLock.RUnlock()
	check.OK(t, err)
}

// GoSettings returns the settings of the go command in the form of an environment, for a test whose home is another folder: what was compiled
// with these settings is in the cache of this home.
func GoSettings(t testing.TB) (env []string) {
	t.Helper()
	names := []string{"GOCACHE", "GOENV", "GOFLAGS", "GOMODCACHE", "GOPATH"}
	out := check.Must(exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output())(t)
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, names[i]+"="+value)
	}
	return env
}
