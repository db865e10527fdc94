package natsrun

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// localNode is a node inside this process.
type localNode struct{ ns *server.Server }

func startInProcess(ctx context.Context, spec nodeSpec, logger *slog.Logger) (runningNode, error) {
	opts, err := nodeOptions(spec)
	if err != nil {
		return nil, err
	}

	// A server in this process is asked without HTTP.
	opts.HTTPHost, opts.HTTPPort = "", 0

	ns, err := startServer(ctx, opts, Config{Logger: logger, ReadyTimeout: timeLeft(ctx)}, nil)
	if err != nil {
		return nil, err
	}
	return &localNode{ns: ns}, nil
}

func (l *localNode) info(ctx context.Context) (*server.JSInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	info, err := l.ns.Jsz(streamInfo())
	if err != nil {
		return nil, fmt.Errorf("natsrun: JetStream of %s: %w", l.ns.Name(), err)
	}
	return info, nil
}

func (l *localNode) routes(ctx context.Context) (*server.Routez, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	routes, err := l.ns.Routez(nil)
	if err != nil {
		return nil, fmt.Errorf("natsrun: routes of %s: %w", l.ns.Name(), err)
	}
	return routes, nil
}

func (l *localNode) kill() error { return ErrNoProcess }

func (l *localNode) pause(bool) error { return ErrNoProcess }

func (l *localNode) stop() error {
	l.ns.Shutdown()
	l.ns.WaitForShutdown()
	return nil
}

// streamInfo asks for every stream and consumer of every account with its leader.
func streamInfo() *server.JSzOptions {
	return &server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Limit: maxStreams}
}

// maxStreams bounds an answer about streams.
const maxStreams = 10_000

// timeLeft returns how long ctx lasts; it has a deadline.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultClusterReady
	}
	return time.Until(deadline)
}
