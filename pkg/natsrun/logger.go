package natsrun

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// serverLog passes the server's log lines to slog and remembers the first fatal one. The server reports a failed start
// only in its log: Start returns nothing, and a fatal line does not end a process that embeds the server.
type serverLog struct {
	broken func() // nil for none
	log    *slog.Logger

	mu    sync.Mutex
	fatal string
}

func newServerLog(log *slog.Logger, broken func()) *serverLog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &serverLog{broken: broken, log: log}
}

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Errorf implements server.Logger. That a stream cannot write any more the server says here and nowhere else.
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
	ctx := context.Background() //nolint:forbidigo // the server's log lines have none
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, v...)) //nolint:sloglint // the server's own sentence
	}
}
