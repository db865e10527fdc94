// The importer turns recipe videos and pages into recipes. Its configuration is the environment; see importer.Config.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/expediter-io/expediter/services/importer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cfg, err := importer.FromEnvironment()
	if err == nil {
		cfg.Logger = logger
		err = importer.Run(ctx, cfg)
	}
	if err != nil {
		logger.Error("importer: stopped", "error", err)
		os.Exit(1) //nolint:gocritic // stop only forgets the signals
	}
}
