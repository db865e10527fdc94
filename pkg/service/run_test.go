package service_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/service"
)

// A service that cannot connect says why, and closes what it holds.
func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]service.BaseConfig{
		"shop: connect to nats://127.0.0.1:1": {NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:1"}},
		"shop: NATS_NKEY":                     {NATSConfig: service.NATSConfig{NATSNkey: "/nonexistent"}},
	} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		err := service.Run(t.Context(), service.Spec{
			Close: func() error { return errSold }, Config: cfg.WithDefaults(service.None, 1), Name: "shop",
			Open: func(context.Context, *service.Service) error { return errors.New("opened without a server") },
		})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, errSold) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
