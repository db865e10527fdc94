package notifier

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/cancel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/desk"
	"github.com/expediter-io/expediter/services/notifier/internal/digest"
	"github.com/expediter-io/expediter/services/notifier/internal/fanout"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/httpapi"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
	"github.com/expediter-io/expediter/services/notifier/internal/natsapi"
	"github.com/expediter-io/expediter/services/notifier/internal/optout"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
	"github.com/expediter-io/expediter/services/notifier/internal/throttle"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// readyTimeout bounds one check of readiness.
const readyTimeout = time.Second

// Notifier is a running notifier.
type Notifier struct {
	// Directory holds the recipients.
	Directory *recipient.Directory

	// Inbox holds what users are told in the application.
	Inbox *inapp.Inbox

	book      *book
	cancelled *cancel.Set
	closers   []closer // channels
	cfg       Config
	counters  counters
	digests   *digest.Book
	expander  *fanout.Expander
	health    *health.Book
	ledger    *ledger.Ledger
	links     *optout.Links // nil when there are to be none
	payloads  payloads
	planner   *plan.Planner
	reader    *plan.Reader
	roots     *x509.CertPool
	source    *recipient.HTTP // nil when recipients are not asked for over HTTP
	senders   []*deliver.Sender
	throttle  *throttle.Book
	workers   []*hired

	api       *httpapi.API
	desk      *desk.Desk
	micro     *service.Micro
	nc        *nats.Conn
	parts     *service.Parts
	server    *service.Server
	telemetry *natsotel.Telemetry
	unobserve func() error

	stopOnce sync.Once
	stopErr  error
}

// hired is a worker and whether it takes jobs.
type hired struct {
	*worker.Worker

	consumer string
	state    atomic.Pointer[workerState]
}

type workerState struct{ reason error }

// hooks are others that also note whether the worker takes jobs.
func (h *hired) hooks(others worker.Hooks) worker.Hooks {
	others.Ready = func(_ bool, reason error) { h.state.Store(&workerState{reason: reason}) }
	return others
}

var errNotStarted = errors.New("the worker has not started to take jobs")

// Run connects to NATS, serves until ctx ends, and stops: what is under way is finished.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg = cfg.withDefaults()
	nc, err := service.NATS{
		CA: cfg.NATSCA, Creds: cfg.NATSCreds, Logger: cfg.Logger, Name: name, Nkey: cfg.NATSNkey, URL: cfg.NATSURL,
	}.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if cfg.Exports == nil {
		if cfg.Exports, err = export.Start(ctx, export.Config{Service: name, Version: cfg.Version}); err != nil {
			return fmt.Errorf("notifier: %w", err)
		}
		defer func() { err = errors.Join(err, service.StopExports(ctx, cfg.Exports)) }()
	}
	n, err := Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "notifier: ready", "http", n.URL(), "nats", nc.ConnectedUrlRedacted())
	select {
	case <-ctx.Done():
	case <-n.parts.Ended():
	}
	return n.Stop()
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Notifier, error) {
	cfg = cfg.withDefaults()
	book, err := cfg.validate()
	roots, rootsErr := cfg.roots()
	links, linksErr := cfg.links()
	channels, closers, waysErr := cfg.open(tools{links: links, roots: roots, texts: book.texts})
	cfg.Channels = append(slices.Clip(cfg.Channels), channels...)
	if err := errors.Join(rootsErr, linksErr, waysErr, err); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	if err := (service.Assets{
		Create: cfg.CreateAssets, Logger: cfg.Logger, Name: name, Streams: assets,
		Options: contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage},
	}).Prepare(ctx, js); err != nil {
		return nil, err
	}
	n := &Notifier{book: book, cfg: cfg, closers: closers, links: links, nc: nc, roots: roots, parts: service.NewParts(ctx)}
	if err := n.start(ctx, js); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

func (n *Notifier) start(ctx context.Context, js jetstream.JetStream) (err error) {
	if n.telemetry, err = service.Telemetry(name, n.cfg.Exports); err != nil {
		return err
	}
	if n.unobserve, err = n.observe(); err != nil {
		return err
	}
	if err := n.open(ctx, n.nc, js); err != nil {
		return err
	}
	if err := n.hire(ctx, js); err != nil {
		return err
	}
	return n.serve(ctx, js)
}

// serve begins to take jobs and requests.
func (n *Notifier) serve(ctx context.Context, js jetstream.JetStream) error {
	publisher, err := contracts.NewPublisher(js, contracts.PublisherConfig{
		Source: "/notifier", Prepare: func(ctx context.Context, msg *nats.Msg) { n.telemetry.Inject(ctx, msg.Header) },
	})
	if err != nil {
		return err
	}
	if n.desk, err = desk.Open(ctx, js, desk.Config{
		Cancelled: n.cancelled, Digests: n.digests, Health: n.health, Ledger: n.ledger, Planner: n.planner, Publisher: publisher,
		Reader: n.reader,
	}); err != nil {
		return err
	}
	if n.server, err = service.Listen(ctx, name, n.cfg.Listen); err != nil {
		return err
	}
	if n.micro, err = service.StartMicro(n.nc, service.MicroConfig{
		Description: "Tells everybody whom an event concerns", Endpoints: natsapi.Endpoints(n.desk), Logger: n.cfg.Logger,
		Name: name, Sort: desk.Problem, Version: n.cfg.Version,
	}); err != nil {
		return err
	}
	n.parts.Go(n.cancelled.Run)
	for _, w := range n.workers {
		n.parts.Go(w.Run)
	}
	n.parts.Go(n.book.run)
	n.parts.Go(n.health.Run)
	router := service.NewRouter(service.RouterConfig{
		Exports: n.cfg.Exports, Logger: n.cfg.Logger, Name: name, Ready: n.ready, Sort: desk.Problem, Version: n.cfg.Version,
	})
	n.api = httpapi.Add(httpapi.Config{Desk: n.desk, Inbox: n.Inbox, Origins: n.cfg.Origins, Router: router})
	if n.links != nil {
		page := &optout.Page{Directory: n.Directory, Links: n.links}
		router.Handle("GET "+optout.Path, page.Ask)
		router.Handle("POST "+optout.Path, page.Do)
	}
	n.server.Serve(n.parts, service.ServerConfig{Exports: n.cfg.Exports, Handler: router, Logger: n.cfg.Logger, Name: name})
	return nil
}

// ready runs the checks of readiness.
func (n *Notifier) ready(ctx context.Context) map[string]error {
	ctx, stop := context.WithTimeout(ctx, readyTimeout)
	defer stop()
	checks := map[string]error{"nats": nil, "rules": n.book.ready(), "store": n.ledger.Ping(ctx)}
	if !n.nc.IsConnected() {
		checks["nats"] = fmt.Errorf("connection is %s", n.nc.Status())
	}
	for _, w := range n.workers {
		checks[w.consumer] = w.state.Load().reason
	}
	return checks
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (n *Notifier) URL() string { return n.server.URL() }

// assets are the names of the streams that the notifier works with.
var assets = []string{
	contracts.StreamEvents, contracts.StreamNotifications,
	"KV_" + contracts.BucketDeliveries, "KV_" + contracts.BucketDirectory, "KV_" + contracts.BucketInbox, "KV_" + contracts.BucketJobs,
}

// open binds what the notifier works on.
func (n *Notifier) open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (err error) {
	if n.Directory, err = recipient.OpenDirectory(ctx, js); err != nil {
		return err
	}
	if n.Inbox, err = inapp.Open(ctx, js, inapp.Config{Keep: n.cfg.InboxKeep}); err != nil {
		return err
	}
	if n.ledger, err = ledger.Open(ctx, js); err != nil {
		return err
	}
	if n.health, err = health.Open(ctx, js, health.Config{DisableAfter: n.cfg.DisableAfter, Logger: n.cfg.Logger}); err != nil {
		return err
	}
	if n.cancelled, err = cancel.Open(ctx, js); err != nil {
		return err
	}
	if n.digests, err = digest.Open(ctx, js); err != nil {
		return err
	}
	if n.throttle, err = throttle.Open(ctx, js); err != nil {
		return err
	}
	if n.reader, err = plan.NewReader(ctx, js); err != nil {
		return err
	}
	resolver := n.cfg.Resolver
	if resolver == nil {
		resolver = n.Directory
		if n.cfg.ResolverURL != "" {
			n.source, err = recipient.NewHTTP(recipient.HTTPConfig{RootCAs: n.roots, Token: n.cfg.ResolverToken, URL: n.cfg.ResolverURL})
			if err != nil {
				return err
			}
			resolver = n.source
		}
	}
	n.planner, err = plan.New(ctx, js, plan.Config{
		MaxRecipients: n.cfg.MaxRecipients, PageBytes: n.cfg.pageBytes, Passed: n.cfg.passed, Resolver: recipient.Carried(resolver),
		Rules: n.book.rules.Load,
	})
	if err != nil {
		return err
	}
	n.expander, err = fanout.New(ctx, nc, n.cfg.passed)
	return err
}

// hire makes the workers: one for events, one for plans, and one for each channel, so that none holds up another.
func (n *Notifier) hire(ctx context.Context, js jetstream.JetStream) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := host + "-" + strconv.Itoa(os.Getpid())
	add := func(stream, consumer string, concurrency int) (*worker.Worker, error) {
		h := &hired{consumer: consumer}
		h.state.Store(&workerState{reason: errNotStarted})
		w, err := worker.New(js, worker.Config{
			AckWait: n.cfg.AckWait, AutoCreate: n.cfg.CreateAssets, Bucket: contracts.BucketJobs, Concurrency: concurrency,
			Consumer: consumer, Hooks: n.telemetry.Hooks(h.hooks(n.cfg.hooks)), Logger: n.cfg.Logger, Stream: stream,
			Middleware: []worker.Middleware{n.telemetry.Middleware},
		})
		h.Worker = w
		n.workers = append(n.workers, h)
		return w, err
	}
	w, err := add(contracts.StreamEvents, "notifier", n.cfg.Concurrency)
	if err == nil {
		err = worker.Handle(w, contracts.EventsSubjects, n.planPolicy(), n.planEvent)
	}
	if err != nil {
		return err
	}
	if w, err = add(contracts.StreamNotifications, "notifier-expand", expansions); err == nil {
		err = worker.Handle(w, contracts.NotifyPlanRecordsSubjects, expandPolicy(), n.expandPlan)
	}
	if err != nil {
		return err
	}
	rows, err := record.Open(ctx, js, contracts.StreamNotifications)
	if err != nil {
		return fmt.Errorf("notifier: %w", err)
	}
	inbox := Channel{Channel: n.Inbox, Retries: inboxRetries(), Silent: true, Timeout: inboxTimeout}
	for _, c := range append([]Channel{inbox}, n.cfg.Channels...) {
		var known deliver.Health
		if c.Endpoints {
			known = n.health
		}
		sender, err := deliver.New(deliver.Config{
			AtMostOnce: c.AtMostOnce, Cancelled: n.cancelled, Channel: c.Channel, Digests: n.digests, Health: known,
			Ledger: n.ledger, Logger: n.cfg.Logger, Passed: n.cfg.passed, Payload: n.payload, Profiles: n.Directory,
			Retries: c.Retries, Rows: rows, Silent: c.Silent,
			Throttles: n.throttle, Timeout: c.Timeout, Worker: id,
		})
		if err != nil {
			return err
		}
		n.senders = append(n.senders, sender)
		w, err := add(contracts.StreamNotifications, "notifier-send-"+c.Name(), n.cfg.Concurrency)
		if err == nil {
			err = worker.Handle(w, "notify.send."+c.Name()+".>", sender.Policy(), sender.Work)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inboxTimeout bounds one write of the inbox.
const inboxTimeout = 5 * time.Second

// inboxRetries are the waits between the tries of a row of the inbox. What it is on has mostly been away for a moment, with all else:
// only one that fails for minutes is full, or gone, and is left alone for long.
func inboxRetries() []time.Duration {
	first, then := []time.Duration{time.Second, 5 * time.Second}, slices.Repeat([]time.Duration{15 * time.Second}, 8)
	return slices.Concat(first, then, deliver.DefaultRetries()[1:])
}

// Stop takes no more requests and work, waits until what is under way is finished or handed back, and returns what went
// wrong while the notifier ran. It may be called more than once.
func (n *Notifier) Stop() error {
	n.stopOnce.Do(func() {
		n.stopErr = errors.Join(n.micro.Stop(), n.server.Stop())
		if n.api != nil {
			n.api.Wait()
		}
		n.stopErr = errors.Join(n.stopErr, n.parts.Stop())
		for _, c := range n.closers {
			c.Close()
		}
		if n.expander != nil {
			n.expander.Close()
		}
		if n.source != nil {
			n.source.Close()
		}
		if n.unobserve != nil {
			n.stopErr = errors.Join(n.stopErr, n.unobserve())
		}
	})
	return n.stopErr
}
