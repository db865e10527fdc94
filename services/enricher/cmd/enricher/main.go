// The enricher attaches delivery links to restaurants. Its configuration is the environment; see enricher.Config.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/expediter-io/expediter/services/enricher"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cfg, err := enricher.FromEnvironment()
	if err == nil {
		cfg.Logger = logger
		err = enricher.Run(ctx, cfg)
	}
	if err != nil {
		logger.Error("enricher: stopped", "error", err)
		os.Exit(1) //nolint:gocritic // stop only forgets the signals
	}
}
