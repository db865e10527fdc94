package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Spec describes a service.
type Spec struct {
	// Checks returns the results of the service's own checks of readiness by name, nil or a [Note] for a passed check. It must send no
	// requests: each probe calls it. The connection, the room in the streams, writes to the stores, and the workers are checked in addition.
	// Defaults to none.
	Checks func() map[string]error

	// Close releases the service's resources. It is called once, after all goroutines have ended, even if the start failed: Open may then
	// have returned early, or not have been called. Defaults to nothing.
	Close func() error

	// Config is the configuration, valid and with its defaults. Required.
	Config BaseConfig

	// Description describes the service. Required.
	Description string

	// Endpoints returns endpoints of the NATS micro service beside those of the operations. It is called after Open. Defaults to none.
	Endpoints func() []Endpoint

	// Errors maps the service's own errors. Defaults to the errors that all services have.
	Errors ErrorMapper

	// Name begins log lines, errors, subjects and environment variables. Required.
	Name string

	// Open makes the parts of the service, once its streams exist. Jobs and requests arrive after Open. Required.
	Open func(context.Context, *Service) error

	// OpenAPI describes the service's API, see [RouterConfig]. Defaults to none.
	OpenAPI []byte

	// Routes adds the operations and further routes to those that every service has. It is called after Open. Required.
	Routes func(*Router)

	// Streams are the names of the streams that the service needs. A bucket's is "KV_" and its name. Required.
	Streams []string

	// Timeout bounds the answer to each request over HTTP and NATS. Event streams are not bounded. Defaults to 15 seconds.
	Timeout time.Duration

	// WriteTimeout bounds an answer over HTTP; streams set their own. Defaults to 1 minute.
	WriteTimeout time.Duration
}

// Service is a running service.
type Service struct {
	// Config is the configuration, with the exports of [Run].
	Config BaseConfig

	// Conn is the connection to NATS.
	Conn *nats.Conn

	// JetStream is a context of Conn.
	JetStream jetstream.JetStream

	// Telemetry connects parts with the exports, or with nothing when there are none.
	Telemetry *natsotel.Telemetry

	access   *access.Guard // nil for none
	fullness *fullness
	group    *Group
	keys     *access.Keys // nil for none
	micro    *Micro
	oidc     *access.OIDC // nil for none
	presence *presence
	probe    *probe
	requests *nats.Conn // for requests over NATS: a flood of them must not hold up what the service itself asks over Conn
	router   *Router
	runs     []func(context.Context) error // called when the service serves
	spec     Spec

	unobserve []func() error // unregister the metrics of remote services and of readiness

	listeners []listener // the API's listener is first; none before Open has returned

	stopOnce sync.Once
	stopErr  error

	held map[string]func() error // checks of the slots of workers, by name

	mu      sync.Mutex // guards workers
	workers map[string]error
}

// Main reads the configuration, and runs a service until the process is interrupted or terminated. It logs the error of a service that
// failed, and returns the exit code of the process.
//
// With the arguments "ready" and a URL it only asks whether the service at the URL is ready: a health check for a container that has no
// other program.
func Main[C any](name string, fromEnvironment func() (C, error), run func(context.Context, C) error) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // begins here
	var err error
	said := ": stopped"
	if len(os.Args) == 3 && os.Args[1] == "ready" {
		said, err = ": not ready", AskReady(ctx, os.Args[2])
	} else {
		var cfg C
		if cfg, err = fromEnvironment(); err == nil {
			err = run(ctx, cfg)
		}
	}
	stop()
	if err != nil {
		NewLogger(os.Stderr, 0).Error(name+said, "error", err)
		return 1
	}
	return 0
}

// Run connects to NATS, serves until ctx ends or a part of the service fails, and stops: requests and jobs under way are
// finished or handed back. A service whose ctx ends while it starts has not failed: Run returns nil.
func Run(ctx context.Context, spec Spec) (err error) {
	cfg := &spec.Config
	nc, err := cfg.connect(spec.Name)
	if err != nil {
		return errors.Join(err, spec.close())
	}
	defer nc.Close()
	if cfg.Exports == nil {
		if cfg.Exports, err = export.Start(ctx, export.Config{Service: spec.Name, Version: cfg.Version}); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", spec.Name, err), spec.close())
		}
		defer func() { err = errors.Join(err, StopExports(ctx, cfg.Exports)) }()
	}
	s, err := Start(ctx, nc, spec)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled): // nothing failed: it was told to stop
		cfg.Logger.InfoContext(ctx, spec.Name+": stopped before it was ready", "error", err)
		return nil
	case err != nil:
		return err
	}
	cfg.Logger.InfoContext(ctx, spec.Name+": ready",
		"http", s.URL(), "admin", s.AdminURL(), "nats", nc.ConnectedUrlRedacted())
	select {
	case <-ctx.Done():
	case <-s.group.Ended():
	}
	return s.Stop()
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, spec Spec) (*Service, error) {
	s := &Service{
		Config: spec.Config, Conn: nc, group: NewGroup(ctx), spec: spec, held: map[string]func() error{}, workers: map[string]error{},
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Service) start(ctx context.Context) (err error) {
	name, cfg := s.spec.Name, s.Config
	if s.JetStream, err = jetstream.New(s.Conn); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.requests, err = s.Conn.Opts.Connect(); err != nil {
		return fmt.Errorf("%s: connect for requests: %w", name, redact.Error(err))
	}
	if err := cfg.prepare(ctx, s.JetStream, name, s.spec.Streams); err != nil {
		return err
	}
	if s.Telemetry, err = telemetry(name, cfg.Exports); err != nil {
		return err
	}
	if s.fullness, err = newFullness(ctx, s.JetStream, s.spec.Streams, cfg.Exports); err != nil {
		return err
	}
	s.probe = newProbe(ctx, s.JetStream, s.spec.Streams)
	s.Go(s.probe.run)
	s.presence = newPresence(s.JetStream, name, cfg.Version)
	if slices.Contains(s.spec.Streams, jobsStream) {
		s.Go(s.presence.run)
	}
	if err := s.openAccess(); err != nil {
		return err
	}
	if err := s.spec.Open(ctx, s); err != nil {
		return err
	}
	s.Go(s.fullness.run)
	if err := errors.Join(
		s.show("service.ready", "", "check", "1 while the check of readiness is passed, else 0.", s.passed),
		s.show("certificate.expiration.timestamp", "s", "certificate", "When a certificate ends, in Unix time.", s.certificates),
	); err != nil {
		return err
	}
	s.route()
	if err := s.listen(ctx); err != nil {
		return err
	}
	endpoints := Endpoints(s.router.Ops())
	if s.spec.Endpoints != nil {
		endpoints = append(endpoints, s.spec.Endpoints()...)
	}
	if s.micro, err = StartMicro(s.requests, MicroConfig{
		Description: s.spec.Description, Endpoints: endpoints, Errors: s.spec.Errors,
		Instance: s.presence.place.ID, Logger: cfg.Logger, Name: name, Telemetry: s.Telemetry, Timeout: s.spec.Timeout, Version: cfg.Version,
	}); err != nil {
		return err
	}
	for _, run := range s.runs {
		s.group.Go(run)
	}
	s.serve()
	return nil
}

// Go calls run in a goroutine when the service serves, with a context that ends when the service stops. The service stops when run returns
// by itself. Only Open may call it.
func (s *Service) Go(run func(context.Context) error) { s.runs = append(s.runs, run) }

// Worker returns a worker that runs by [Service.Go]. Its readiness is a check under the name check. Worker sets the fields of cfg that are
// the same in all services, Concurrency if it is not set, and replaces Hooks.Ready.
func (s *Service) Worker(check string, cfg worker.Config) (*worker.Worker, error) {
	s.workers[check] = errors.New("the worker has not started to take jobs")
	s.fullness.work(cfg.Stream)
	cfg.AckWait, cfg.AutoCreate, cfg.Logger = s.Config.AckWait, s.Config.CreateAssets, s.Config.Logger
	cfg.KeepConsumers = !s.Config.UpdateConsumers
	cfg.Version = s.Config.Version
	cfg.Bucket, cfg.Middleware = contracts.BucketJobs, []worker.Middleware{s.Telemetry.Middleware}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, s.Config.Concurrency)
	cfg.Hooks.Ready = func(_ bool, reason error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.workers[check] = reason
	}
	cfg.Hooks = s.Telemetry.Hooks(cfg)
	w, err := worker.New(s.JetStream, cfg)
	if err != nil {
		return nil, err
	}
	s.held[check] = func() error { return slotsHeld(w.Stuck(), cfg.Concurrency) }
	s.Go(w.Run)
	return w, nil
}

// Held calls held whenever the metrics are read, see [natsotel.Telemetry.ObserveHeld], until the service stops. Only Open may call it.
func (s *Service) Held(held func(tell func(side string, n int))) error {
	stop, err := s.Telemetry.ObserveHeld(held)
	if err != nil {
		return fmt.Errorf("%s: metrics: %w", s.spec.Name, err)
	}
	s.unobserve = append(s.unobserve, stop)
	return nil
}

// Ready returns the results of the checks of readiness by name: nil or a [Note] for a passed check. They are the last results of checks in
// the background. No round trip.
func (s *Service) Ready() map[string]error {
	checks := map[string]error{"nats": nil, "store": s.probe.ready(), "streams": s.fullness.ready()}
	if !s.requests.IsConnected() {
		checks["nats"] = fmt.Errorf("connection for requests is %s", s.requests.Status())
	}
	if !s.Conn.IsConnected() {
		err := fmt.Errorf("connection is %s", s.Conn.Status())
		checks["nats"], checks["store"] = err, err
	}
	if s.spec.Checks != nil {
		maps.Copy(checks, s.spec.Checks())
	}
	if s.keys != nil {
		checks["keys"] = nil
		if err := s.keys.Err(); err != nil {
			checks["keys"] = Note("the former keys stay in force: " + err.Error())
		}
	}
	if s.oidc != nil {
		checks["oidc"] = nil
		if err := s.oidc.Err(); err != nil {
			checks["oidc"] = Note("the keys of the issuer stay as they are: " + err.Error())
		}
	}
	for name, held := range s.held {
		checks[name] = held()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, err := range s.workers {
		if err != nil {
			checks[name] = err
		}
	}
	return checks
}

// slotsHeld is the check of readiness for the slots of a worker: an error when all are held by jobs that go on after their time, and a
// note when some are.
func slotsHeld(stuck []worker.Info, slots int) error {
	if len(stuck) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %d slots are held by jobs that go on after their time, such as %s, attempt %d, job %s",
		len(stuck), slots, stuck[0].Subject, stuck[0].Attempt, stuck[0].ID)
	if len(stuck) >= slots {
		return errors.New(text)
	}
	return Note(text)
}

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns the errors
// of the service while it ran. It may be called more than once.
func (s *Service) Stop() error {
	s.stopOnce.Do(func() {
		select {
		case <-s.group.Ended(): // a part has failed: the instance is missed
		default:
			if s.presence != nil {
				s.presence.left.Store(true)
			}
		}
		err := errors.Join(s.micro.Stop(), s.stopListening())
		if s.requests != nil {
			s.requests.Close()
		}
		err = errors.Join(err, s.group.Stop(), s.fullness.close())
		for _, stop := range s.unobserve {
			err = errors.Join(err, stop())
		}
		s.stopErr = errors.Join(err, s.spec.close())
	})
	return s.stopErr
}

func (spec Spec) close() error {
	if spec.Close == nil {
		return nil
	}
	return spec.Close()
}
