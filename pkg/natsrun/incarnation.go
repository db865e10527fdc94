package natsrun

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	log := &serverLog{broken: broken, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
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
	// The server writes the reason of its failure to its log only, and does not become ready.
	ready := log.firstFatal() == "" && ns.ReadyForConnections(timeout)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("natsrun: server %s: %w", opts.ServerName, err)
	}
	if fatal := log.firstFatal(); fatal != "" {
		if strings.Contains(fatal, syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("%w: server %s: %s: stop the program that listens there, or set Port 0 for a free one",
				ErrPortInUse, opts.ServerName, fatal)
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

// serverLog passes the server's log lines to slog and remembers the first fatal one. The server reports a failed start
// only in its log: Start returns nothing, and a fatal line does not end a process that embeds the server.
type serverLog struct {
	broken func() // nil for none
	log    *slog.Logger

	mu    sync.Mutex
	fatal string
}

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Errorf implements server.Logger. Only here does the server report that a stream cannot write any more.
func (l *serverLog) Errorf(format string, v ...any) {
	l.write(slog.LevelError, format, v)
	if l.broken != nil && strings.Contains(format, "ritical write error") {
		l.broken()
	}
}

// Fatalf implements server.Logger. Unlike the server's own it returns.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	if l.fatal == "" {
		l.fatal = fmt.Sprintf(format, v...)
	}
	l.mu.Unlock()
	l.write(slog.LevelError, format, v)
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) { l.write(slog.LevelInfo, format, v) }

// Tracef implements server.Logger.
func (l *serverLog) Tracef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.write(slog.LevelWarn, format, v) }

// firstFatal returns the first fatal line, or "".
func (l *serverLog) firstFatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) write(level slog.Level, format string, v []any) {
	ctx := context.Background() //nolint:forbidigo // the server's log lines have no context
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, v...))
	}
}
