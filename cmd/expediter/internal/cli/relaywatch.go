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

// watched is what is told of a relay over HTTP. One that nobody listens to has no server and no exports.
type watched struct {
	exports *export.Exports
	logger  *slog.Logger
	parts   *service.Parts
	server  *service.Server

	mu  sync.Mutex
	err error // why it does not publish
}

var errNotYet = errors.New("not connected yet")

// watched listens where the flags say. Nothing is answered before serve.
func (f *relayFlags) watched(ctx context.Context) (*watched, error) {
	w := &watched{err: errNotYet, logger: f.logger, parts: service.NewParts(ctx)}
	var err error
	if w.server, err = service.Listen(ctx, "relay", f.listen); err != nil || w.server == nil {
		return w, err
	}
	if w.exports, err = export.Start(ctx, export.Config{Service: "expediter-relay", Version: version()}); err != nil {
		return nil, errors.Join(err, w.server.Stop())
	}
	return w, nil
}

// meters makes the metrics, nil where nobody sees them.
func (w *watched) meters() metric.MeterProvider {
	if w.exports == nil {
		return nil
	}
	return w.exports.Meters
}

// ready is the relay's hook.
func (w *watched) ready(ready bool, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = reason; ready {
		w.err = nil
	}
}

// serve answers from now on.
func (w *watched) serve() {
	w.server.Serve(w.parts, service.ServerConfig{
		Logger: w.logger, Name: "relay",
		Handler: service.NewRouter(service.RouterConfig{
			Exports: w.exports, Logger: w.logger, Name: "relay", Version: version(),
			Ready: func(context.Context) map[string]error {
				w.mu.Lock()
				defer w.mu.Unlock()
				return map[string]error{"publishing": w.err}
			},
		}),
	})
}

// stop answers nobody any more.
func (w *watched) stop() {
	err := errors.Join(w.server.Stop(), w.parts.Stop())
	if w.exports != nil {
		err = errors.Join(err, service.StopExports(context.Background(), w.exports)) //nolint:forbidigo // the caller's is over
	}
	if err != nil {
		w.logger.Warn("relay.stop_failed", "error", err)
	}
}
