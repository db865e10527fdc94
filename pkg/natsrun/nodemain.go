package natsrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
)

const (
	nodeEnv   = "NATSRUN_NODE"
	readyLine = "ready\n"
)

var nodeMainCalled atomic.Bool

// NodeMain runs a cluster node and exits if this process was started as one, and otherwise returns at once. A program
// that sets ClusterConfig.Processes calls it first thing:
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

// checkNodeMain returns ErrNoNodeMain unless the program has called NodeMain. A child that does not call NodeMain would
// run the whole test once more, with children of its own.
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

	ctx := context.Background() //nolint:forbidigo // the first of this process; bounded by ReadyTimeout

	ns, err := startServer(ctx, opts, Config{Logger: logger, ReadyTimeout: defaultClusterReady}, nil)
	if err != nil {
		return err
	}

	// Both fail if the parent is gone; the node ends in any case.
	_, writeErr := io.WriteString(stdout, readyLine)
	_, readErr := io.Copy(io.Discard, stdin)

	ns.Shutdown()
	ns.WaitForShutdown()
	return errors.Join(writeErr, readErr)
}
