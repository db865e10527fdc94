// Package console shows operators the state of a deployment in a browser, and lets them act on it.
//
// All state is in the streams and buckets: the console itself stores only its records in the stream AUDIT. Each request for a page takes a
// few round trips; only the figures of the overview are collected before, by [Console.Run].
//
// Pages are HTML that needs no script, neither to read nor to act. The scripts only keep a page up to date.
package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
)

//go:embed templates/*.html static
var files embed.FS

// Account is an account of the servers whose streams and buckets are shown.
type Account struct {
	// JetStream reaches the account's streams: under the account's API prefix unless it is the connection's own account.
	JetStream jetstream.JetStream

	// Name is the name of the account, "" for the connection's own.
	Name string
}

// of returns the account for requests of a context, which ends when one of them is denied.
func (a Account) of(ctx context.Context) (Account, error) {
	js, err := denied.JetStream(ctx, a.JetStream)
	return Account{js, a.Name}, err
}

// Config describes a Console. Accounts, Conn and Logger are required.
type Config struct {
	// Access admits callers: the scope read is needed to see, and operate to act. Callers that are bound to a user may do neither. Nil admits
	// everybody to everything.
	Access *access.Guard

	// Accounts are the accounts that are shown, each under a different name.
	Accounts []Account

	// Audit records the actions, in the stream AUDIT of the account of Conn. It is required unless ReadOnly.
	Audit *audit.Log

	// Conn asks workers and services, and follows their events.
	Conn *nats.Conn

	// Doctor looks for problems of the deployment. It must end with its context, and its error must have no secrets. If nil, the console has
	// no page for it.
	Doctor func(context.Context) ([]Finding, error)

	// Hosts are patterns of the host names under which the console is reached, as in RouterConfig.Hosts. Without Access, all hosts but
	// localhost and addresses need one.
	Hosts []string

	// Logger gets failed requests and pages.
	Logger *slog.Logger

	// Meters make the gauge console.problem, which has the problems of the overview for alerts. If nil, there is none.
	Meters metric.MeterProvider

	// Prefix is the path of the console, such as /console. Defaults to none.
	Prefix string

	// ReadOnly turns all actions off.
	ReadOnly bool

	// Version is the version of the program.
	Version string
}

func (cfg Config) check() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("console: "+format, args...))
		}
	}
	add(len(cfg.Accounts) > 0, "Accounts is empty: want at least the account of the connection")
	names := map[string]bool{}
	for _, a := range cfg.Accounts {
		add(a.JetStream != nil, "account %q has no JetStream", a.Name)
		add(!names[a.Name], "account %q is there twice", a.Name)
		names[a.Name] = true
	}
	add(cfg.Audit != nil || cfg.ReadOnly, "Audit is nil: without records nothing can be done, so set it, or ReadOnly")
	add(cfg.Conn != nil, "Conn is nil: want a connection")
	add(cfg.Logger != nil, "Logger is nil: want a logger")
	path := strings.HasPrefix(cfg.Prefix, "/") && !strings.HasSuffix(cfg.Prefix, "/") && !strings.ContainsAny(cfg.Prefix, "{}?#% ")
	add(cfg.Prefix == "" || path,
		"Prefix is %q: want none, or a path such as /console", cfg.Prefix)
	return errors.Join(errs...)
}

// Console is an [http.Handler]. Make it with [New].
type Console struct {
	cfg      Config
	denied   *denied.Watch
	hub      *hub
	nav      []link
	overview *collector
	notes    *store[note]
	own      jetstream.JetStream // the context of Conn's account, which has the stream AUDIT
	looks    chan struct{}
	replays  *replays
	routes   *http.ServeMux
	sessions *store[session]
	static   map[string]asset
	trusted  *http.CrossOriginProtection
	views    views
}

type link struct{ Path, Title string }

// screens are the pages of the navigation, in its order. Each has the function that adds the page and its actions.
var screens = []struct {
	link

	add func(*Console)
}{
	{link{"/", "Overview"}, (*Console).addOverview},
	{link{"/dead", "Dead letters"}, (*Console).addDead},
	{link{"/workers", "Workers"}, (*Console).addWorkers},
	{link{"/notifications", "Notifications"}, (*Console).addNotifications},
	{link{"/imports", "Imports"}, (*Console).addImports},
	{link{"/places", "Places"}, (*Console).addPlaces},
	{link{"/jobs", "Jobs"}, (*Console).addJobs},
	{link{"/keys", "Keys"}, (*Console).addKeys},
	{link{"/schedules", "Schedules"}, (*Console).addSchedules},
	{link{"/audit", "Audit"}, (*Console).addAudit},
	{link{doctorPath, "Doctor"}, (*Console).addDoctor},
}

// New returns a Console. No round trip. The error has every mistake of the configuration.
func New(cfg Config) (*Console, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Console{
		cfg: cfg, hub: newHub(), notes: newStore[note](maxNotes, noteTime), routes: http.NewServeMux(),
		sessions: newStore[session](maxSessions, sessionTime), trusted: http.NewCrossOriginProtection(),
	}
	c.denied = denied.New(func(err *denied.Error) {
		cfg.Logger.Error("console: NATS denies a request", "subject", err.Subject, "error", err)
	})
	c.denied.Conn = cfg.Conn
	others := cfg.Conn.ErrorHandler()
	cfg.Conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if !c.denied.Handle(err) && others != nil {
			others(nc, sub, err)
		}
	})
	c.overview = newCollector(c)
	if cfg.Meters != nil {
		_, err := cfg.Meters.Meter("github.com/expediter-io/expediter/internal/console").Int64ObservableGauge("console.problem",
			metric.WithDescription("A problem of the overview."), metric.WithInt64Callback(c.overview.observe))
		if err != nil {
			return nil, fmt.Errorf("console: make the gauge of problems: %w", err)
		}
	}
	c.looks = make(chan struct{}, 2)
	c.static = readStatic()
	var err error
	if c.own, err = jetstream.New(cfg.Conn); err != nil {
		return nil, fmt.Errorf("console: use JetStream: %w", err)
	}
	if c.views, err = c.parse(); err != nil {
		return nil, err
	}
	c.routes.HandleFunc("GET /static/{name}", c.serveStatic)
	c.addSignIn()
	c.addLive()
	for _, s := range screens {
		if s.Path == doctorPath && cfg.Doctor == nil {
			continue
		}
		c.nav = append(c.nav, s.link)
		s.add(c)
	}
	return c, nil
}

// Run collects the figures of the overview, and keeps open pages up to date, until ctx ends. Then all streams to browsers end.
func (c *Console) Run(ctx context.Context) error {
	var collecting sync.WaitGroup
	collecting.Go(func() { c.overview.run(ctx) })
	c.hub.run(ctx)
	collecting.Wait()
	c.replays.close()
	return nil
}

// policy lets a page load files of the console only, and have no script or style within it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	if c.cfg.Access == nil || len(c.cfg.Hosts) > 0 {
		if err := service.KnownHost(r.Host, c.cfg.Hosts); err != nil {
			http.Error(w, "console: "+err.Error(), http.StatusMisdirectedRequest)
			return
		}
	}
	if r.URL.Path == c.cfg.Prefix {
		http.Redirect(w, r, c.cfg.Prefix+"/", http.StatusMovedPermanently)
		return
	}
	http.StripPrefix(c.cfg.Prefix, http.HandlerFunc(c.route)).ServeHTTP(w, r)
}

// route serves the page of a path. An unknown path has a page with that error.
func (c *Console) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := c.routes.Handler(r); pattern == "" && r.Method == http.MethodGet {
		c.serve(w, r, access.Public(), func(*request) error { return fail(http.StatusNotFound, "There is no page %.200q.", r.URL.Path) })
		return
	}
	c.routes.ServeHTTP(w, r)
}
