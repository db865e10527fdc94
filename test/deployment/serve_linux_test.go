package deployment_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A server that stops answering is killed and restarted, and none is started once the script was asked to stop. The
// server of the test takes no interrupt, as one that has locked itself.
func TestServeKillsAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nats-server": "trap '' INT; echo started; while read -r -t 1 _ <>wait || true; do :; done",
		"curl":        "echo asked >>asked; [[ $(wc -l <asked) -le 3 ]] || exit 28; echo '{\"status\":\"ok\"}'",
		"sleep":       "exit 0",
	} {
		testbed.WriteProgram(t, filepath.Join(dir, name), "#!/bin/bash\n"+text+"\n")
	}
	check.OK(t, syscall.Mkfifo(filepath.Join(dir, "wait"), 0o600))
	script := check.Must(os.ReadFile("../../deploy/nats/serve"))(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(string(script), "/data", dir, 1), "serve", "n1.conf")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out := check.Must(cmd.StdoutPipe())(t)
	check.OK(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range 2 {
		check.Require(t, lines.Scan() && lines.Text() == "started", "the server has not started: %q", lines.Text())
	}
	check.OK(t, os.Remove(filepath.Join(dir, "asked"))) // the next one answers for a while
	check.Require(t, lines.Scan(), "the server has not started")
	check.OK(t, cmd.Process.Signal(os.Interrupt))
	check.OK(t, os.Remove(filepath.Join(dir, "asked")))
	check.That(t, !lines.Scan(), "another server has started: %q", lines.Text())
	check.That(t, cmd.Wait() != nil && cmd.ProcessState.ExitCode() == 137, "it ended with %s", cmd.ProcessState)
}

// A folder of another user, to which a link leads that he has made before, gets no keys.
func TestPrepareRefusesTheFolderOfAnother(t *testing.T) {
	t.Parallel()
	another, link := t.TempDir(), filepath.Join(t.TempDir(), "site")
	if os.Chown(another, 1234, 1234) != nil {
		t.Skip("only root can give a folder to another user")
	}
	check.OK(t, os.Symlink(filepath.Join(another, "site"), link))
	for _, site := range []string{link, filepath.Join(another, "site")} {
		out, err := exec.CommandContext(t.Context(), "../../deploy/nats/prepare", site).CombinedOutput()
		check.That(t, err != nil && strings.Contains(string(out), another+" belongs to another user"), "%v: %s", err, out)
		check.Equal(t, len(check.Must(os.ReadDir(another))(t)), 0, "files")
	}
}
