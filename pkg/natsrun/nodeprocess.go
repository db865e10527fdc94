package natsrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun/internal/process"
)

const (
	logName   = "server.log"
	stopGrace = 20 * time.Second
)

// processNode is a node in a process of its own: this executable, in NodeMain.
// It reads its spec from stdin and stops at the end of it, so it does not outlive
// this process; it says on stdout that it is ready, or why not.
type processNode struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and err is set
	err    error
	log    string
	stdin  io.WriteCloser
	url    string // of its monitor
}

func startProcess(ctx context.Context, spec nodeSpec, _ *slog.Logger) (incarnation, error) {
	p := &processNode{
		exited: make(chan struct{}),
		log:    filepath.Join(spec.Dir, logName),
		url:    "http://" + address(spec.MonitorPort),
	}

	stdout, err := p.launch()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()

	if err := p.handshake(ctx, spec, stdout); err != nil {
		return nil, errors.Join(err, p.kill())
	}

	return p, nil
}

// launch starts the process. Its log is appended to over its incarnations.
func (p *processNode) launch() (io.ReadCloser, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}

	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the node's log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own handle

	p.cmd = exec.Command(exe) //nolint:gosec,noctx // this very program; it outlives the context of its start
	p.cmd.Env = append(os.Environ(), nodeEnv+"=1")
	p.cmd.Stderr = log
	process.Bind(p.cmd)

	p.stdin, err = p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the node: %w", err)
	}

	// Not StdoutPipe: Wait, which runs at the same time, would close it.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe from the node: %w", err)
	}
	defer writer.Close() //nolint:errcheck // the process has its own handle

	p.cmd.Stdout = writer

	if err := p.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", exe, err), reader.Close())
	}

	return reader, nil
}

// begin starts the process from a thread that lives as long as the process: the
// kernel sends the parent-death signal when the thread ends that made the child.
func (p *processNode) begin() error {
	started := make(chan error, 1)

	go func() {
		defer close(p.exited)

		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		err := p.cmd.Start()
		started <- err

		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()

	return <-started
}

// handshake hands the node its spec and waits until it says that it is ready.
func (p *processNode) handshake(ctx context.Context, spec nodeSpec, stdout io.ReadCloser) error {
	if err := json.NewEncoder(p.stdin).Encode(spec); err != nil {
		return fmt.Errorf("hand over the configuration: %w", err)
	}

	// The end of ctx ends the read.
	stop := context.AfterFunc(ctx, func() { _ = stdout.Close() })
	defer stop()

	answer, err := io.ReadAll(io.LimitReader(stdout, int64(len(readyLine))))
	if string(answer) == readyLine {
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("%w: process %d: %w: its log is %s", ErrNotReady, p.cmd.Process.Pid, ctx.Err(), p.log)
	}

	return errors.Join(fmt.Errorf("%w: the process ended: %s (%s)", ErrNotReady, lastLine(p.log), p.log), err)
}

func (p *processNode) info(ctx context.Context) (*server.JSInfo, error) {
	return ask[server.JSInfo](ctx, fmt.Sprintf("%s/jsz?accounts=true&streams=true&consumers=true&limit=%d", p.url, maxStreams))
}

func (p *processNode) routes(ctx context.Context) (*server.Routez, error) {
	return ask[server.Routez](ctx, p.url+"/routez")
}

// ask returns what a node's monitor answers.
func ask[T any](ctx context.Context, url string) (*T, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("natsrun: %w", err)
	}

	// No connection is kept: it would keep goroutines.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("natsrun: ask the node: %w", err)
	}
	defer resp.Body.Close()

	answer := new(T)
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return nil, fmt.Errorf("natsrun: answer of the node (%s): %w", resp.Status, err)
	}

	return answer, nil
}

func (p *processNode) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}

	<-p.exited

	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close its stdin: %w", err)
	}

	return nil
}

func (p *processNode) pause(on bool) error { return process.Pause(p.cmd.Process, on) }

// stop lets the node hand over and end by itself, and kills it if it does not.
func (p *processNode) stop() error {
	// A frozen process reads nothing. An error here means that it has gone already,
	// and matters only if it turns out that it has not.
	err := errors.Join(process.Pause(p.cmd.Process, false), p.stdin.Close())

	select {
	case <-p.exited:
	case <-time.After(stopGrace):
		return errors.Join(fmt.Errorf("it did not end within %s: its log is %s", stopGrace, p.log), err, p.kill())
	}

	if p.err != nil {
		return fmt.Errorf("%w: %s (%s)", p.err, lastLine(p.log), p.log)
	}

	return nil
}

// lastLine returns the last line of a node's log.
func lastLine(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // the log that this package wrote
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimSpace(string(text)), "\n")

	return lines[len(lines)-1]
}
