package cli

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
)

// watched serves the metrics and the readiness of a relay over HTTP. Without an address it has no server and no exports.
type watched struct {
	exports *export.Exports
	logger  *slog.Logger
	group   *service.Group
	server  *service.Server

	mu  sync.Mutex
	err error // the reason why the relay does not publish
}

var errNotYet = errors.New("not connected yet")

// watched listens on the address of the flags. It answers no request before serve.
func (f *relayFlags) watched(ctx context.Context) (*watched, error) {
	w := &watched{err: errNotYet, logger: f.logger, group: service.NewGroup(ctx)}
	var err error
	if w.server, err = service.Listen(ctx, "relay", f.listen); err != nil || w.server == nil {
		return w, err
	}
	if w.exports, err = export.Start(ctx, export.Config{Service: "expediter-relay", Version: version()}); err != nil {
		return nil, errors.Join(err, w.server.Stop())
	}
	return w, nil
}

// meters returns the provider of the meters, nil without exports.
func (w *watched) meters() metric.MeterProvider {
	if w.exports == nil {
		return nil
	}
	return w.exports.Meters
}

// ready is the Ready hook of the relay.
func (w *watched) ready(ready bool, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = reason; ready {
		w.err = nil
	}
}

// serve begins to answer requests.
func (w *watched) serve() {
	w.server.Serve(w.group, service.ServerConfig{
		Logger: w.logger, Name: "relay",
		Handler: service.NewRouter(service.RouterConfig{
			Exports: w.exports, Logger: w.logger, Name: "relay", Version: version(),
			Ready: func() map[string]error {
				w.mu.Lock()
				defer w.mu.Unlock()
				return map[string]error{"publishing": w.err}
			},
		}),
	})
}

// stop ends the server and the exports.
func (w *watched) stop() {
	err := errors.Join(w.server.Stop(), w.group.Stop())
	if w.exports != nil {
		err = errors.Join(err, service.StopExports(context.Background(), w.exports)) //nolint:forbidigo // the caller's is over
	}
	if err != nil {
		w.logger.Warn("relay.stop_failed", "error", err)
	}
}
