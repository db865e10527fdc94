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
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun/internal/process"
)

const (
	logName   = "server.log"
	stopGrace = 20 * time.Second
)

// processNode is a node in a process of its own: this executable, in NodeMain. It reads its spec from stdin and stops at the end of stdin,
// so it does not outlive this process. It writes to stdout that it is ready, or the reason that it is not.
type processNode struct {
	*process.Process

	log string
	url string // of its monitor
}

func startProcess(ctx context.Context, spec nodeSpec, _ *slog.Logger) (runningNode, error) {
	p := &processNode{log: filepath.Join(spec.Dir, logName), url: "http://" + address(spec.MonitorPort)}
	if err := p.launch(); err != nil {
		return nil, err
	}
	defer p.Out.Close() //nolint:errcheck // it was read
	if err := p.handshake(ctx, spec); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// launch starts the process, which appends to the log of its earlier incarnations.
func (p *processNode) launch() error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this executable: %w", err)
	}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the node's log: %w", err)
	}
	defer log.Close()        //nolint:errcheck // the process has its own handle
	cmd := exec.Command(exe) //nolint:gosec,noctx // this very program; the process outlives the context of its start
	cmd.Env = append(os.Environ(), nodeEnv+"=1")
	cmd.Stderr = log
	p.Process, err = process.Start(cmd)
	return err
}

// handshake sends the node its spec and waits until the node is ready.
func (p *processNode) handshake(ctx context.Context, spec nodeSpec) error {
	if err := json.NewEncoder(p.In).Encode(spec); err != nil {
		return fmt.Errorf("hand over the configuration: %w", err)
	}
	// The end of ctx ends the read.
	stop := context.AfterFunc(ctx, func() { _ = p.Out.Close() }) // the read says so
	defer stop()
	answer, err := io.ReadAll(io.LimitReader(p.Out, int64(len(readyLine))))
	if string(answer) == readyLine {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: process %d: %w: its log is %s", ErrNotReady, p.PID(), ctx.Err(), p.log)
	}
	last := lastLine(p.log)
	if strings.Contains(last, syscall.EADDRINUSE.Error()) {
		return fmt.Errorf("%w: %s", ErrPortInUse, last)
	}
	return errors.Join(fmt.Errorf("%w: the process ended: %s (%s)", ErrNotReady, last, p.log), err)
}

func (p *processNode) info(ctx context.Context) (*server.JSInfo, error) {
	return ask[server.JSInfo](ctx, fmt.Sprintf("%s/jsz?accounts=true&streams=true&consumers=true&limit=%d", p.url, maxStreams))
}

func (p *processNode) routes(ctx context.Context) (*server.Routez, error) {
	return ask[server.Routez](ctx, p.url+"/routez")
}

// ask returns the answer of a node's monitor.
func ask[T any](ctx context.Context, url string) (*T, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("natsrun: %w", err)
	}
	// No connection is kept open: each would keep goroutines.
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

func (p *processNode) kill() error { return p.Kill() }

func (p *processNode) pause(on bool) error { return p.Pause(on) }

// stop lets the node hand over and end by itself, and kills it if it does not.
func (p *processNode) stop() error {
	// A paused process reads nothing. An error here means that the process has ended already, and matters only if it has not.
	err := errors.Join(p.Pause(false), p.In.Close())
	select {
	case <-p.Gone:
	case <-time.After(stopGrace):
		return errors.Join(fmt.Errorf("it did not end within %s: its log is %s", stopGrace, p.log), err, p.kill())
	}
	if p.Err != nil {
		return fmt.Errorf("%w: %s (%s)", p.Err, lastLine(p.log), p.log)
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

const (
	nodeEnv   = "NATSRUN_NODE"
	readyLine = "ready\n"
)

var nodeMainCalled atomic.Bool

// NodeMain runs a cluster node and exits if this process was started as one, and otherwise returns at once. A program that sets
// ClusterConfig.Processes has to call it first:
//
//	func TestMain(m *testing.M) {
//		natsrun.NodeMain()
//		os.Exit(m.Run())
//	}
func NodeMain() {
	nodeMainCalled.Store(true)
	if os.Getenv(nodeEnv) == "" {
		return
	}
	if err := serveNode(os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // the node is this whole process
	}
	os.Exit(0) //nolint:revive // the node is this whole process
}

// checkNodeMain returns ErrNoNodeMain unless the program has called NodeMain. A child that does not call NodeMain would run the whole test
// again, with children of its own.
func checkNodeMain() error {
	if nodeMainCalled.Load() {
		return nil
	}
	return fmt.Errorf("%w: call natsrun.NodeMain() first thing in main or TestMain", ErrNoNodeMain)
}

// serveNode runs the node that stdin describes until stdin ends.
func serveNode(stdin io.Reader, stdout, stderr io.Writer) error {
	var spec nodeSpec
	if err := json.NewDecoder(stdin).Decode(&spec); err != nil {
		return fmt.Errorf("natsrun: read the node's spec: %w", err)
	}
	opts, err := nodeOptions(spec)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	ctx := context.Background() //nolint:forbidigo // the root context of this process; ReadyTimeout bounds the start
	ns, err := startServer(ctx, opts, Config{Logger: logger, ReadyTimeout: defaultClusterReady}, nil)
	if err != nil {
		return err
	}
	// Both writes fail if the parent has ended; the node ends in any case.
	_, writeErr := io.WriteString(stdout, readyLine)
	_, readErr := io.Copy(io.Discard, stdin)
	ns.Shutdown()
	ns.WaitForShutdown()
	return errors.Join(writeErr, readErr)
}
