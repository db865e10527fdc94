package enricher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
	"github.com/expediter-io/expediter/services/enricher/internal/natsapi"
)

const (
	// consumerName is the durable consumer that all instances share.
	consumerName = "enricher"

	// inboxPrefix is where answers arrive: what the permissions in deploy/nats let the enricher subscribe to.
	inboxPrefix = "_INBOX_enricher"

	// drainTimeout bounds how long HTTP requests under way are waited for.
	drainTimeout = 5 * time.Second

	// readyTimeout bounds one check of readiness.
	readyTimeout = time.Second
)

// Stats is what an enricher has done since it started.
type Stats = enrich.Stats

// Enricher is a running enricher.
type Enricher struct {
	cfg      Config
	nc       *nats.Conn
	service  *enrich.Service
	micro    *natsapi.API
	listener net.Listener
	api      *httpapi.API
	server   *http.Server

	cancel      context.CancelFunc // ends the worker
	stopped     chan struct{}      // the worker or the HTTP server has ended
	stopOnce    sync.Once
	stopErr     error
	workerState atomic.Pointer[workerState]
	running     sync.WaitGroup
	mu          sync.Mutex
	errs        []error
}

type workerState struct{ reason error }

var errNotStarted = errors.New("the worker has not started to take jobs")

// Run connects to NATS, serves until ctx ends, and stops: requests and jobs under way are finished.
func Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	nc, err := connect(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	e, err := Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "enricher: ready", "http", e.URL(), "nats", nc.ConnectedUrlRedacted())
	select {
	case <-ctx.Done():
	case <-e.stopped:
	}
	return e.Stop()
}

func connect(cfg Config) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("enricher"), nats.MaxReconnects(-1), nats.CustomInboxPrefix(inboxPrefix), nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cfg.Logger.Error("enricher: NATS", "error", err) }),
	}
	if cfg.NATSCreds != "" {
		options = append(options, nats.UserCredentials(cfg.NATSCreds))
	}
	if cfg.NATSCA != "" {
		options = append(options, nats.RootCAs(cfg.NATSCA))
	}
	if cfg.NATSNkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.NATSNkey)
		if err != nil {
			return nil, fmt.Errorf("enricher: NATS_NKEY: %w", err)
		}
		options = append(options, nkey)
	}
	nc, err := nats.Connect(cfg.NATSURL, options...)
	if err != nil {
		return nil, fmt.Errorf("enricher: connect to %s: %w (is the server running? set NATS_URL)", cfg.NATSURL, err)
	}
	return nc, nil
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Enricher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	providers, err := cfg.providers()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("enricher: %w", err)
	}
	if err := prepareAssets(ctx, js, cfg); err != nil {
		return nil, err
	}
	service, err := enrich.New(ctx, js, cfg.service(providers))
	if err != nil {
		return nil, err
	}
	e := &Enricher{cfg: cfg, nc: nc, service: service, stopped: make(chan struct{})}
	if err := e.start(ctx, js); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// assets are the names of the streams that the enricher works with. The one for dead letters is the worker's to check:
// who writes to it need not be permitted to look into it.
var assets = []string{
	contracts.StreamEnrichJobs,
	"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketJobs, "KV_" + contracts.BucketRequests,
}

// prepareAssets makes the streams and buckets, or checks those that the enricher works with: one that is missing is an
// error, one that is set otherwise than declared is logged.
func prepareAssets(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	all := contracts.Assets(contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage})
	if cfg.CreateAssets {
		if _, err := contracts.Apply(ctx, js, all, contracts.ApplyOptions{}); err != nil {
			return fmt.Errorf("enricher: create streams and buckets: %w", err)
		}
		return nil
	}
	ours := slices.DeleteFunc(all, func(c jetstream.StreamConfig) bool { return !slices.Contains(assets, c.Name) })
	differences, err := contracts.Check(ctx, js, ours)
	if err != nil {
		return fmt.Errorf("enricher: check streams and buckets: %w", err)
	}
	var missing []error
	for _, d := range differences {
		if d.Missing {
			missing = append(missing, fmt.Errorf(
				"enricher: stream %s is missing: have an administrator make it, or set ENRICHER_CREATE_ASSETS", d.Stream))
			continue
		}
		cfg.Logger.WarnContext(ctx, "enricher: a stream is not as declared", "difference", d)
	}
	return errors.Join(missing...)
}

func (e *Enricher) start(ctx context.Context, js jetstream.JetStream) error {
	w, err := e.newWorker(js)
	if err != nil {
		return err
	}
	if e.cfg.Listen != "-" {
		var lc net.ListenConfig
		if e.listener, err = lc.Listen(ctx, "tcp", e.cfg.Listen); err != nil {
			return fmt.Errorf("enricher: listen on %q: %w", e.cfg.Listen, err)
		}
	}
	if e.micro, err = natsapi.Start(e.nc, e.service, e.cfg.Version, e.cfg.Logger); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	e.running.Go(func() { e.ended(w.Run(run)) })
	if e.listener != nil {
		e.serve(run)
	}
	return nil
}

func (e *Enricher) newWorker(js jetstream.JetStream) (*worker.Worker, error) {
	e.workerState.Store(&workerState{reason: errNotStarted})
	w, err := worker.New(js, worker.Config{
		AckWait: e.cfg.AckWait, AutoCreate: e.cfg.CreateAssets, Bucket: contracts.BucketJobs, Concurrency: e.cfg.Concurrency,
		Consumer: consumerName, Logger: e.cfg.Logger, Stream: contracts.StreamEnrichJobs,
		Hooks: worker.Hooks{
			Ready:   func(_ bool, reason error) { e.workerState.Store(&workerState{reason: reason}) },
			Settled: e.service.Settled,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := worker.Handle(w, contracts.EnrichJobsSubjects, enrich.Policy(), e.service.Work); err != nil {
		return nil, err
	}
	return w, nil
}

// serve answers HTTP until the server is shut down. Open event streams end with the base context: a shutdown would wait
// for them otherwise.
func (e *Enricher) serve(ctx context.Context) {
	base, endStreams := context.WithCancel(ctx)
	e.api = httpapi.New(httpapi.Config{
		Logger: e.cfg.Logger, Origins: e.cfg.Origins, Ready: e.ready, Service: e.service, Version: e.cfg.Version,
	})
	e.server = &http.Server{
		Handler:           e.api,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      contracts.MaxWait + 30*time.Second, // streams set their own
		IdleTimeout:       2 * time.Minute,
	}
	e.server.RegisterOnShutdown(endStreams)
	e.running.Go(func() {
		defer endStreams()
		if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			e.ended(fmt.Errorf("enricher: serve HTTP: %w", err))
		}
	})
}

// ended notes that a part of the enricher has ended; unless Stop asked for it, the whole is over.
func (e *Enricher) ended(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.errs = append(e.errs, err)
	}
	select {
	case <-e.stopped:
	default:
		close(e.stopped)
	}
}

// ready runs the checks of readiness.
func (e *Enricher) ready(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	checks := map[string]error{
		"nats": nil, "store": e.service.Ping(ctx), "worker": e.workerState.Load().reason,
	}
	if !e.nc.IsConnected() {
		checks["nats"] = fmt.Errorf("connection is %s", e.nc.Status())
	}
	return checks
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (e *Enricher) URL() string {
	if e.listener == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(e.listener.Addr().String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Enrich answers a request without a network in between. It returns an error that names every failing field when the
// request is invalid. See the package for costs.
func (e *Enricher) Enrich(ctx context.Context, req contracts.EnrichRequest) (contracts.EnrichResponse, error) {
	if err := req.Validate(); err != nil {
		return contracts.EnrichResponse{}, err
	}
	return e.service.Enrich(ctx, req)
}

// Results returns what look-ups of places at a provider came to, with score and evidence, by place id; places without a
// result are left out. One round trip for each 512 places.
func (e *Enricher) Results(ctx context.Context, provider string, placeIDs []string) (map[string]contracts.EnrichResult, error) {
	return e.service.Results(ctx, provider, placeIDs)
}

// Stats returns what the enricher has done since it started.
func (e *Enricher) Stats() Stats { return e.service.Stats() }

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns what went
// wrong while the enricher ran. It may be called more than once.
func (e *Enricher) Stop() error {
	e.stopOnce.Do(func() { e.stopErr = e.stop() })
	return e.stopErr
}

func (e *Enricher) stop() error {
	var errs []error
	if e.micro != nil {
		errs = append(errs, e.micro.Stop())
	}
	if e.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout) //nolint:forbidigo // the caller's may be over
		defer cancel()
		if err := e.server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("enricher: requests still under way after %s are cut off: %w", drainTimeout, err), e.server.Close())
		}
		e.api.Wait()
	} else if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	if e.cancel != nil {
		e.cancel()
	}
	e.running.Wait()
	e.service.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(append(errs, e.errs...)...)
}
