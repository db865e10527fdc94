// The notifier tells everybody whom an event concerns. Its configuration is the environment; see notifier.Config.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // quiet hours are in the zones of users, whatever the machine knows

	"github.com/expediter-io/expediter/services/notifier"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cfg, err := notifier.FromEnvironment()
	if err == nil {
		cfg.Logger = logger
		err = notifier.Run(ctx, cfg)
	}
	if err != nil {
		logger.Error("notifier: stopped", "error", err)
		os.Exit(1) //nolint:gocritic // stop only forgets the signals
	}
}
