package chaos_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// serverEnv makes the test binary a single server: its directory and port as JSON.
const serverEnv = "KVLOCK_CHAOS_SERVER"

// serverMain is the life of such a server: until its standard input ends.
func serverMain() {
	spec := os.Getenv(serverEnv)
	if spec == "" {
		return
	}
	if err := serve(spec); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(spec string) error {
	var s single
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	srv, err := natsrun.Start(natsrun.Config{Dir: s.Dir, Listen: true, Port: s.Port})
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Println(srv.URL()) //nolint:forbidigo // its parent waits for it
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// single is one server that is a process of its own, as the nodes of a natsrun.Cluster are.
type single struct {
	Dir  string `json:"dir"`
	Port int    `json:"port"`

	url string
	cmd *exec.Cmd
	in  io.Closer
	log io.Writer
}

func startSingle(t *testing.T) *single {
	t.Helper()
	s := &single{Dir: filepath.Join(t.TempDir(), "store"), log: t.Output()}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	if _, err := fmt.Sscanf(s.url, "nats://127.0.0.1:%d", &s.Port); err != nil {
		t.Fatalf("%q: %v", s.url, err)
	}
	return s
}

func (s *single) start() error {
	spec, err := json.Marshal(s)
	if err != nil {
		return err
	}
	s.cmd = exec.Command(os.Args[0])
	natstest.OwnGroup(s.cmd)
	s.cmd.Env = append(os.Environ(), serverEnv+"="+string(spec))
	s.cmd.Stderr = s.log
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		s.kill()
		return fmt.Errorf("the server said nothing: %w", lines.Err())
	}
	s.url = lines.Text()
	return nil
}

func (s *single) signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// kill ends the server as a crash does, also when it is frozen.
func (s *single) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = s.in.Close()
}
