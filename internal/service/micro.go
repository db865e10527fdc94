package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/service/audit"
)

const (
	// requestsAtOnce bounds the requests that are answered at the same time; further requests wait in the subscription.
	requestsAtOnce = 256

	// requestsWaiting and bytesWaiting bound those that wait at an endpoint. The client's own bound of 500,000 would hold requests in front
	// of which nobody waits any more, for minutes after a flood; a request beyond the bound has no answer.
	requestsWaiting = 64 * requestsAtOnce
	bytesWaiting    = 64 << 20
)

// flushTimeout bounds the wait until the server has the subscriptions.
const flushTimeout = 5 * time.Second

// Endpoint is an endpoint of a micro service.
type Endpoint struct {
	// Answer answers a request with JSON.
	Answer func(ctx context.Context, request Request) ([]byte, error)

	// Name is the endpoint's name; Subject is its subject, such as importer.v1.get.
	Name, Subject string

	// Takes and Gives describe a request and its answer in the metadata of the endpoint.
	Takes, Gives string
}

// Request is a request to a micro service.
type Request struct {
	// Data is the body.
	Data []byte

	// Header are the headers.
	Header nats.Header
}

// MicroConfig describes a micro service.
type MicroConfig struct {
	// Description describes the service. Required.
	Description string

	// Endpoints are the endpoints of the service. Required.
	Endpoints []Endpoint

	// Errors maps the service's own errors. Defaults to the errors that all services have.
	Errors ErrorMapper

	// Instance is an id of this run of the service, in the metadata of its answers to pings. Defaults to none.
	Instance string

	// Logger gets the errors that clients are not shown. Required.
	Logger *slog.Logger

	// Name is the name of the service. Required.
	Name string

	// Telemetry counts the requests, and makes their spans. Defaults to none.
	Telemetry *natsotel.Telemetry

	// Timeout bounds an answer. Defaults to 15 seconds.
	Timeout time.Duration

	// Version is a semantic version. Required.
	Version string
}

// Micro is a running NATS micro service (ADR-32). Services of one name share the requests.
type Micro struct {
	ctx    context.Context
	cancel context.CancelFunc
	cfg    MicroConfig
	limit  chan struct{}
	lines  *sparse // of the log
	micro  micro.Service

	mu       sync.RWMutex // guards stopped; no request begins after it is set
	stopped  bool
	requests sync.WaitGroup
}

// StartMicro adds the service to the connection.
func StartMicro(nc *nats.Conn, cfg MicroConfig) (*Micro, error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the context begins here and ends with Stop
	m := &Micro{ctx: ctx, cancel: cancel, cfg: cfg, limit: make(chan struct{}, requestsAtOnce), lines: newSparse()}
	svc, err := micro.AddService(nc, micro.Config{
		Name: cfg.Name, Version: cfg.Version, Description: cfg.Description, Metadata: map[string]string{metaInstance: cfg.Instance},
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			m.warn("micro service", "subject", err.Subject, "error", err.Description)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: add micro service: %w", cfg.Name, err)
	}
	m.micro = svc
	errs := make([]error, 0, len(cfg.Endpoints))
	for _, e := range cfg.Endpoints {
		errs = append(errs, svc.AddEndpoint(e.Name, m.handler(e), micro.WithEndpointSubject(e.Subject),
			micro.WithEndpointPendingLimits(requestsWaiting, bytesWaiting),
			micro.WithEndpointMetadata(map[string]string{"request": e.Takes, "response": e.Gives})))
	}
	// A client that learns of the service may send a request at once.
	if err := errors.Join(append(errs, nc.FlushTimeout(flushTimeout))...); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: add endpoints: %w", cfg.Name, err), m.Stop())
	}
	return m, nil
}

// Stop takes no more requests and returns when those under way are answered. It does nothing for a nil Micro.
func (m *Micro) Stop() error {
	if m == nil {
		return nil
	}
	err := m.micro.Stop()
	m.cancel()
	m.mu.Lock()
	m.stopped = true // further requests in the subscriptions are refused
	m.mu.Unlock()
	m.requests.Wait()
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("%s: stop micro service: %w", m.cfg.Name, err)
	}
	return nil
}

// handler answers each request in a new goroutine: an endpoint gets requests one by one, and an answer may take long.
func (m *Micro) handler(e Endpoint) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		m.mu.RLock()
		defer m.mu.RUnlock()
		header := nats.Header(r.Headers())
		ctx, answering := m.cfg.Telemetry.Answer(m.ctx, e.Subject, header)
		if m.stopped || !m.admit() {
			answering.EndAnswer(m.respond(r, nil, ErrStopping))
			return
		}
		m.requests.Go(func() {
			defer func() { <-m.limit }()
			ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(m.cfg.Timeout, requestTimeout), errSilent)
			defer cancel()
			data, err := e.Answer(audit.For(ctx, header.Get(audit.ActorHeader)), Request{Data: r.Data(), Header: header})
			answering.EndAnswer(m.respond(r, data, err))
		})
	})
}

// admit waits until fewer than requestsAtOnce requests are under way, and reports whether the request may begin. It may
// not once the service stops.
func (m *Micro) admit() bool {
	select {
	case m.limit <- struct{}{}:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// respond sends an answer, or an error in the headers of ADR-32 with the failing fields and the code in the body. It returns the
// error of the request or the answer, and its status.
func (m *Micro) respond(r micro.Request, data []byte, failed error) (status int, err error) {
	status = http.StatusInternalServerError
	if failed == nil {
		err = r.Respond(data)
	} else {
		status, err = m.refuse(r, failed)
	}
	if err != nil {
		m.warn("answer not sent", "subject", r.Subject(), "error", err)
	}
	if failed != nil || r.Reply() == "" { // no client waits for an answer
		err = failed
	}
	return status, err
}

func (m *Micro) refuse(r micro.Request, err error) (status int, unsent error) {
	p := m.cfg.Errors.Of(err)
	if p.Status == http.StatusInternalServerError {
		m.warn("request failed", "subject", r.Subject(), "error", err)
	}
	more := struct {
		Code   string `json:"code,omitempty"`
		Errors any    `json:"errors,omitempty"`
	}{Code: p.Code}
	var body []byte
	if len(p.Errors) > 0 {
		more.Errors = p.Errors
	}
	if more.Errors != nil || more.Code != "" {
		body, _ = json.Marshal(more)
	}
	return p.Status, r.Error(strconv.Itoa(p.Status), p.Detail, body)
}

func (m *Micro) warn(text string, attrs ...any) {
	if left, ok := m.lines.turn(); ok {
		m.cfg.Logger.Warn(m.cfg.Name+": "+text, append(attrs, "unlogged", left)...)
	}
}

// Group is a group of goroutines of a service. The service stops when one of them ends by itself. Make it with [NewGroup].
type Group struct {
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	once    sync.Once
	running sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

// NewGroup returns an empty group. The contexts of its goroutines have the values of ctx, and only Stop ends them.
func NewGroup(ctx context.Context) *Group {
	g := &Group{ended: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

// Go calls run in a goroutine, whose context ends with Stop. It must not be called after Stop.
func (g *Group) Go(run func(context.Context) error) {
	g.running.Go(func() {
		err := run(g.ctx)
		g.mu.Lock()
		defer g.mu.Unlock()
		if err != nil {
			g.errs = append(g.errs, err)
		}
		g.once.Do(func() { close(g.ended) })
	})
}

// Ended returns a channel that is closed when the first goroutine has ended.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// Stop ends the contexts of all goroutines, waits for them, and returns their errors.
func (g *Group) Stop() error {
	g.cancel()
	g.running.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}
