package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

type relayFlags struct {
	natsFlags

	concurrency int
	database    string
	format      string
	listen      string
	migrate     bool
	printSchema bool
	requeue     bool
	status      bool
	stream      string
}

func newRelay(g *globals) *cobra.Command {
	f := &relayFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("relay", func(ctx context.Context, _ []string) error { return f.run(ctx) })
	flags := cmd.Flags()
	f.register(flags)
	flags.IntVar(&f.concurrency, "concurrency", 2, "batches under way at a time; each has a connection to the database")
	flags.StringVar(&f.database, "database", "", "URL of the database (default $DATABASE_URL)")
	flags.StringVar(&f.listen, "listen", service.None, "address for /metrics, /livez and /readyz, such as :9090")
	flags.BoolVar(&f.migrate, "migrate", false, "make the table first")
	flags.BoolVar(&f.printSchema, "print-schema", false, "write the SQL that makes the table, and do nothing else")
	flags.BoolVar(&f.requeue, "requeue", false, "make the rows that were set aside pending again, and do nothing else")
	flags.BoolVar(&f.status, "status", false, "show the backlog, and do nothing else")
	flags.StringVar(&f.stream, "stream", "", "stream of the events (default EVENTS)")
	f.outputFlag(cmd, &f.format, listFormats...) // of --status
	return cmd
}

func (f *relayFlags) run(ctx context.Context) error {
	if f.printSchema {
		return f.say("%s", outbox.Schema)
	}
	if err := f.check(); err != nil {
		return err
	}
	pool, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if f.requeue {
		n, err := outbox.Requeue(ctx, pool)
		if err == nil {
			f.notef("Taken back: %d.\n", n)
		}
		return withoutTable(err)
	}
	if f.status {
		return withoutTable(f.tellBacklog(ctx, pool))
	}
	return f.relay(ctx, pool)
}

// undefinedTable is the code of Postgres for a missing table.
const undefinedTable = "42P01"

// withoutTable adds advice to the error for a missing outbox.
func withoutTable(err error) error {
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == undefinedTable {
		return fmt.Errorf("%w (expediter relay --migrate makes it)", err)
	}
	return err
}

// tellBacklog writes the backlog: for --status it is the result, and otherwise a note.
func (f *relayFlags) tellBacklog(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	b, err := outbox.ReadBacklog(ctx, pool)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("Waiting: %d, the oldest for %s; set aside: %d.\n", b.Rows, b.Oldest.Round(time.Second), b.SetAside)
	switch {
	case !f.status:
		f.notef("%s", text)
		return nil
	case asJSON(f.format):
		return f.writeLine(map[string]int64{"waiting": b.Rows, "oldest_seconds": int64(b.Oldest.Seconds()), "set_aside": b.SetAside})
	}
	return f.say("%s", text)
}

func (f *relayFlags) check() error {
	errs := []error{refuse(f.concurrency < 1 || f.concurrency > 64, "--concurrency %d: want 1 to 64", f.concurrency)}
	if f.database = cmp.Or(f.database, f.config.Getenv("DATABASE_URL")); f.database == "" {
		errs = append(errs, errors.New("--database is missing, and there is no DATABASE_URL"))
	}
	return f.usage(append(errs, refuse(asJSON(f.format) && !f.status, "--output %s goes with --status", f.format))...)
}

// open connects to the database, with as many connections as the relay needs.
func (f *relayFlags) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(f.database)
	if err != nil {
		return nil, &UsageError{Err: fmt.Errorf("--database: %w", err)} // pgx leaves out the password
	}
	config.MaxConns = max(config.MaxConns, int32(f.concurrency)+1)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := pool.Ping(bounded); err != nil {
		pool.Close()
		return nil, fmt.Errorf("%w: the database: %w", errUnavailable, err)
	}
	return pool, nil
}

// relay runs until ctx ends.
func (f *relayFlags) relay(ctx context.Context, pool *pgxpool.Pool) error {
	if f.migrate {
		if err := outbox.Migrate(ctx, pool); err != nil {
			return err
		}
	}
	server, opts, err := f.options(ctx, "expediter relay")
	if err != nil {
		return err
	}
	about, err := f.watched(ctx)
	if err != nil {
		return err
	}
	defer about.stop()
	hooks, err := about.hooks(cmp.Or(f.stream, contracts.StreamEvents))
	if err != nil {
		return err
	}
	r, err := outbox.New(ctx, outbox.Config{
		Concurrency: f.concurrency, Fingerprint: recipient.PublisherConfig().Fingerprint, Hooks: hooks,
		Logger: f.logger, Meters: about.exports.Meters,
		NATSOptions: opts, NATSURL: server, Pool: pool, PublishTimeout: f.timeout, Stream: f.stream, Subject: relayedSubject,
	})
	if errors.Is(err, outbox.ErrNoSchema) {
		return fmt.Errorf("%w (or run with --migrate)", err)
	}
	if err != nil {
		return err
	}
	if err := f.tellBacklog(ctx, pool); err != nil {
		return err
	}
	f.notef("Publishing event_outbox of %s to NATS at %s.\n", pool.Config().ConnConfig.Database, server)
	about.serve()
	if url := about.server.URL(); url != "" {
		f.notef("Metrics are at %s/metrics.\n", url)
	}
	r.Run(ctx)
	s := r.Stats()
	f.notef("Published %d (%d of them again), refused %d times, set aside %d.\n", s.Published, s.Duplicates, s.Refused, s.SetAside)
	if s.LastError != "" {
		f.notef("The last error, at %s: %s\n", s.LastErrorAt.Format(time.RFC3339), s.LastError)
	}
	if err := f.tellBacklog(context.WithoutCancel(ctx), pool); err != nil {
		f.logger.WarnContext(ctx, "outbox.failed", "error", err)
	}
	return nil
}

// relayedSubject returns the subject of an event, or why the notifier would refuse it. A route is refused: whoever may insert a row could
// choose channels and texts.
func relayedSubject(m contracts.Event) (string, error) {
	e, err := recipient.Of(m)
	if err == nil && len(e.Route) > 0 {
		err = contracts.Mistake("Event", "/route", "is not relayed: use POST /v1/notify")
	}
	if err != nil {
		return "", err
	}
	return e.Subject()
}

// watched exports the metrics and traces of a relay, and serves the metrics and the readiness over HTTP if it has an address.
type watched struct {
	exports *export.Exports
	logger  *slog.Logger
	group   *service.Group
	server  *service.Server

	mu  sync.Mutex
	err error // the reason why the relay does not publish
}

// watched listens on the address of the flags. It answers no request before serve.
func (f *relayFlags) watched(ctx context.Context) (*watched, error) {
	w := &watched{err: errors.New("not connected yet"), logger: f.logger, group: service.NewGroup(ctx)}
	var err error
	if w.exports, err = export.Start(ctx, export.Config{Service: "expediter-relay", Version: version()}); err != nil {
		return nil, err
	}
	if w.server, err = service.Listen(ctx, "relay", f.listen); err != nil {
		return nil, errors.Join(err, service.StopExports(ctx, w.exports))
	}
	return w, nil
}

// hooks returns the hooks of the relay. Each event gets a span below the span of the transaction that inserted it, if the row has the trace
// context, and carries the context of its span.
func (w *watched) hooks(stream string) (outbox.Hooks, error) {
	hooks := outbox.Hooks{Ready: w.ready}
	t, err := natsotel.New(natsotel.Config{
		MeterProvider: w.exports.Meters, Propagator: w.exports.Propagator, TracerProvider: w.exports.Tracers,
	})
	hooks.Sending = func(header nats.Header) func(error) {
		_, sending := t.Send(t.Extract(context.Background(), header), stream, header) //nolint:forbidigo // that of the row
		return sending.EndSend
	}
	return hooks, err
}

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
	err := errors.Join(w.server.Stop(), w.group.Stop(),
		service.StopExports(context.Background(), w.exports)) //nolint:forbidigo // the caller's is over
	if err != nil {
		w.logger.Warn("relay.stop_failed", "error", err)
	}
}
