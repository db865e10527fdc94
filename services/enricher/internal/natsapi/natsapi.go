// Package natsapi serves the enricher as a NATS micro service (ADR-32): what HTTP offers, for those who have a NATS
// connection already, and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// The endpoints' subjects. Services of one name share the requests.
const (
	SubjectEnrich = "enricher.v1.enrich" // an EnrichRequest; answers an EnrichResponse
	SubjectGet    = "enricher.v1.get"    // {"requestId"}; answers a Snapshot
)

// requestsAtOnce bounds the requests that are answered at a time; the next ones wait in the subscription.
const requestsAtOnce = 256

// API is a running micro service.
type API struct {
	ctx     context.Context //nolint:containedctx // the life of the API, not of a call
	cancel  context.CancelFunc
	limit   chan struct{}
	logger  *slog.Logger
	service *enrich.Service
	micro   micro.Service

	mu       sync.RWMutex // guards stopped, after which no request begins
	stopped  bool
	requests sync.WaitGroup
}

// errStopping is returned to those whose request came too late.
var errStopping = errors.New("enricher: the service is stopping, ask again")

// Start adds the service to the connection. version is a semantic one.
func Start(nc *nats.Conn, service *enrich.Service, version string, logger *slog.Logger) (*API, error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // begins here, ends with Stop
	a := &API{ctx: ctx, cancel: cancel, limit: make(chan struct{}, requestsAtOnce), logger: logger, service: service}
	svc, err := micro.AddService(nc, micro.Config{
		Name: "enricher", Version: version, Description: "Attaches delivery links to restaurants",
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			logger.Warn("enricher: micro service", "subject", err.Subject, "error", err.Description)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("enricher: add micro service: %w", err)
	}
	a.micro = svc
	err = errors.Join(
		svc.AddEndpoint("enrich", a.handler(a.enrich), micro.WithEndpointSubject(SubjectEnrich), micro.WithEndpointMetadata(map[string]string{
			"request": "EnrichRequest", "response": "EnrichResponse",
		})),
		svc.AddEndpoint("get", a.handler(a.get), micro.WithEndpointSubject(SubjectGet), micro.WithEndpointMetadata(map[string]string{
			"request": `{"requestId":"…"}`, "response": "Snapshot",
		})),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enricher: add endpoints: %w", err), a.Stop())
	}
	return a, nil
}

// Stop takes no more requests and returns when those under way are answered.
func (a *API) Stop() error {
	err := a.micro.Stop()
	a.cancel()
	a.mu.Lock()
	a.stopped = true // what the subscriptions still hold is refused
	a.mu.Unlock()
	a.requests.Wait()
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("enricher: stop micro service: %w", err)
	}
	return nil
}

// handler answers each request in a goroutine of its own: an endpoint gets them one after the other, and one may wait.
func (a *API) handler(answer func(context.Context, []byte) ([]byte, error)) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		a.mu.RLock()
		defer a.mu.RUnlock()
		if a.stopped || !a.admit() {
			a.respond(r, nil, errStopping)
			return
		}
		a.requests.Go(func() {
			defer func() { <-a.limit }()
			data, err := answer(a.ctx, r.Data())
			a.respond(r, data, err)
		})
	})
}

// admit waits for room, and reports false when the service stops meanwhile.
func (a *API) admit() bool {
	select {
	case a.limit <- struct{}{}:
		return true
	case <-a.ctx.Done():
		return false
	}
}

func (a *API) respond(r micro.Request, data []byte, err error) {
	if err == nil {
		err = r.Respond(data)
	} else {
		err = a.respondError(r, err)
	}
	if err != nil {
		a.logger.Warn("enricher: answer could not be sent", "subject", r.Subject(), "error", err)
	}
}

func (a *API) enrich(ctx context.Context, body []byte) ([]byte, error) {
	req, err := contracts.Decode[contracts.EnrichRequest](body)
	if err != nil {
		return nil, err
	}
	resp, err := a.service.Enrich(ctx, req)
	if err != nil {
		return nil, err
	}
	return contracts.Encode(resp)
}

func (a *API) get(ctx context.Context, body []byte) ([]byte, error) {
	var req struct {
		RequestID string `json:"requestId"`
	}
	if err := json.Unmarshal(body, &req); err != nil || req.RequestID == "" {
		return nil, &contracts.ValidationError{Type: "GetRequest", Fields: []contracts.FieldError{{Path: "/requestId", Problem: "is required"}}}
	}
	sub, err := a.service.Subscribe(ctx, req.RequestID, "")
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	update, _, err := sub.Next(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(update.Body) //nolint:wrapcheck // cannot fail
}

// respondError sends the error in the headers of ADR-32, and the failing fields in the body.
func (a *API) respondError(r micro.Request, err error) error {
	var invalid *contracts.ValidationError
	code, text, body := "500", "see the service's log", []byte(nil)
	switch {
	case errors.Is(err, contracts.ErrTooLarge):
		code, text = "413", err.Error()
	case errors.As(err, &invalid):
		code, text = "400", err.Error()
		body, _ = json.Marshal(map[string]any{"errors": invalid.Fields}) //nolint:errcheck,errchkjson // strings only
	case errors.Is(err, enrich.ErrUnknownProvider):
		code, text = "400", err.Error()
	case errors.Is(err, enrich.ErrUnknownRequest):
		code, text = "404", err.Error()
	case errors.Is(err, enrich.ErrTooManySubscriptions), errors.Is(err, errStopping):
		code, text = "503", err.Error()
	case errors.Is(err, kvlock.ErrClosed), errors.Is(err, context.Canceled):
		code, text = "503", errStopping.Error()
	case errors.Is(err, kvlock.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		code, text = "503", "enricher: the store does not answer, ask again"
	default:
		a.logger.Error("enricher: request failed", "subject", r.Subject(), "error", err)
	}
	return r.Error(code, text, body) //nolint:wrapcheck // logged by the caller
}
