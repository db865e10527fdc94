package natsrun

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startServer runs a server with opts and waits until it takes connections and JetStream is enabled. After an error no
// server runs.
// It calls broken, unless that is nil, when the server could not write.
func startServer(ctx context.Context, opts *server.Options, cfg Config, broken func()) (*server.Server, error) {
	ns, err := server.NewServer(opts.Clone())
	if err != nil {
		return nil, fmt.Errorf("natsrun: server %s: %w", opts.ServerName, err)
	}

	log := newServerLog(cfg.Logger, broken)
	ns.SetLogger(log, cfg.Logger != nil && opts.Debug, cfg.Logger != nil && opts.Trace)
	ns.Start()

	if err := awaitReady(ctx, ns, opts, log, cfg.ReadyTimeout); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	return ns, nil
}

func awaitReady(
	ctx context.Context, ns *server.Server, opts *server.Options, log *serverLog, timeout time.Duration,
) error {
	// The server writes why it failed to its log only, and stays not ready.
	ready := log.firstFatal() == "" && ns.ReadyForConnections(timeout)

	if err := ctx.Err(); err != nil {
		return fmt.Errorf("natsrun: server %s: %w", opts.ServerName, err)
	}

	if fatal := log.firstFatal(); fatal != "" {
		if strings.Contains(fatal, syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("%w: server %s: %s", ErrPortInUse, opts.ServerName, fatal)
		}
		return fmt.Errorf("%w: server %s on %s: %s", ErrNotReady, opts.ServerName, opts.StoreDir, fatal)
	}

	if !ready {
		return fmt.Errorf("%w: server %s took longer than %s: a large store in %s needs a longer ReadyTimeout",
			ErrNotReady, opts.ServerName, timeout, opts.StoreDir)
	}

	if opts.JetStream && !ns.JetStreamEnabled() {
		return fmt.Errorf("%w: server %s: JetStream is off: is %s writable and not full?",
			ErrNotReady, opts.ServerName, opts.StoreDir)
	}
	return nil
}
