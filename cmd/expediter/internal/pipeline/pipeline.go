package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
)

// MaxReplicas is how many nodes of a cluster keep a copy of everything; the server allows no more.
const MaxReplicas = 5

// exportTimeout bounds how long spans that are left are sent when all stops.
const exportTimeout = 5 * time.Second

// Config says what runs.
type Config struct {
	// Dir keeps the streams over the end of the process. Defaults to none: a temporary directory.
	Dir string

	// Enrichers are the addresses that the enricher's instances listen on, "-" for none; one instance for each.
	// Defaults to one that does not listen.
	Enrichers []string

	// Importer is what the importers are set up from: their sources, extractor and store. What the pipeline decides for all
	// services is not taken from it. Defaults to the importer's own defaults.
	Importer importer.Config

	// Importers are the addresses that the importer's instances listen on, "-" for none; one instance for each.
	// Defaults to no instance.
	Importers []string

	// Logger gets the log of the services. Defaults to slog.Default().
	Logger *slog.Logger

	// NATSPort is the port that the server listens on, 0 for a free one, -1 for none. Nodes of a cluster always listen
	// on free ones. Defaults to 0.
	NATSPort int

	// Nodes is how many servers there are: 1, or 3 and more for a cluster. Defaults to 1.
	Nodes int

	// Notifier is how the notifiers run, beside what this configuration says. Without rules they have the sample's, and the
	// directory the sample's recipients.
	Notifier notifier.Config

	// Notifiers are the addresses that the notifier's instances listen on, "-" for none; one instance for each.
	// Defaults to no instance.
	Notifiers []string

	// Provider answers for all places. Required.
	Provider provider.Provider

	// ResultTTL is how long results and requests are kept, for a pipeline whose caller takes each result at once: what it
	// keeps, and so the disk and the memory that it needs, is then bounded by time and not by the number of places.
	// Defaults to what the services keep them for.
	ResultTTL time.Duration

	// ServerLogger gets the log of the NATS servers, which is about much that is in order, such as nodes of a cluster that
	// look for each other while they start. Defaults to none.
	ServerLogger *slog.Logger

	// SourceNetworks are networks that the importer's sources may be in although they are private. Defaults to none.
	SourceNetworks []netip.Prefix

	// Version is what the services tell. Defaults to the services' own default.
	Version string
}

// Pipeline is all of it, running.
type Pipeline struct {
	// Conns are the connections of the instances, one each.
	Conns []*nats.Conn

	// Enrichers are the instances of the enricher.
	Enrichers []*enricher.Enricher

	// Importers are the instances of the importer.
	Importers []*importer.Importer

	// Notifiers are the instances of the notifier.
	Notifiers []*notifier.Notifier

	cluster *natsrun.Cluster
	logger  *slog.Logger
	exports []*export.Exports // one for each service: each has metrics of its own
	server  *natsrun.Server

	rulesDir string // of the sample's rules, "" for none
}

// Start runs the server and the services. The caller calls Stop.
func Start(ctx context.Context, cfg Config) (*Pipeline, error) {
	if len(cfg.Enrichers) == 0 {
		cfg.Enrichers = []string{"-"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	p := &Pipeline{logger: cfg.Logger}
	if err := p.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Pipeline) start(ctx context.Context, cfg Config) error {
	if err := p.startNATS(ctx, cfg); err != nil {
		return err
	}
	for i, listen := range cfg.Enrichers {
		nc, err := p.Connect(nats.Name(fmt.Sprintf("enricher-%d", i+1)))
		if err != nil {
			return fmt.Errorf("connect enricher %d: %w", i+1, err)
		}
		p.Conns = append(p.Conns, nc)
		exports, err := export.Start(ctx, export.Config{Service: "enricher", Version: cfg.Version})
		if err != nil {
			return fmt.Errorf("start enricher %d: %w", i+1, err)
		}
		p.exports = append(p.exports, exports)
		e, err := enricher.Start(ctx, nc, enricher.Config{
			CreateAssets: true, Enabled: true, Exports: exports, FoundTTL: cfg.ResultTTL, Listen: listen, Logger: cfg.Logger.With("instance", i+1),
			NotFoundTTL: cfg.ResultTTL, Providers: []provider.Provider{cfg.Provider}, Replicas: p.replicas(),
			RequestTTL: cfg.ResultTTL, Version: cfg.Version,
		})
		if err != nil {
			return fmt.Errorf("start enricher %d: %w", i+1, err)
		}
		p.Enrichers = append(p.Enrichers, e)
	}
	for i, listen := range cfg.Importers {
		if err := p.startImporter(ctx, cfg, i+1, listen); err != nil {
			return fmt.Errorf("start importer %d: %w", i+1, err)
		}
	}
	return p.startNotifiers(ctx, cfg)
}

func (p *Pipeline) startImporter(ctx context.Context, cfg Config, n int, listen string) error {
	nc, err := p.Connect(nats.Name(fmt.Sprintf("importer-%d", n)))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	p.Conns = append(p.Conns, nc)
	exports, err := export.Start(ctx, export.Config{Service: "importer", Version: cfg.Version})
	if err != nil {
		return err
	}
	p.exports = append(p.exports, exports)
	settings := cfg.Importer
	settings.AllowNetworks = append(slices.Clone(settings.AllowNetworks), cfg.SourceNetworks...)
	settings.CreateAssets, settings.Exports, settings.Listen = true, exports, listen
	settings.Logger, settings.Replicas, settings.Version = cfg.Logger.With("instance", n), p.replicas(), cfg.Version
	i, err := importer.Start(ctx, nc, settings)
	if err != nil {
		return err
	}
	p.Importers = append(p.Importers, i)
	return nil
}

func (p *Pipeline) startNATS(ctx context.Context, cfg Config) (err error) {
	if cfg.Nodes > 1 {
		p.cluster, err = natsrun.StartCluster(ctx, natsrun.ClusterConfig{Dir: cfg.Dir, Nodes: cfg.Nodes, Logger: cfg.ServerLogger})
	} else {
		p.server, err = natsrun.Start(natsrun.Config{
			Dir: cfg.Dir, Listen: cfg.NATSPort >= 0, Logger: cfg.ServerLogger, Port: max(cfg.NATSPort, 0),
		})
	}
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	return nil
}

func (p *Pipeline) replicas() int {
	if p.cluster != nil {
		return min(len(p.cluster.Nodes), MaxReplicas)
	}
	return 1
}

// Connect returns a new client of the server, which the caller closes.
func (p *Pipeline) Connect(opts ...nats.Option) (*nats.Conn, error) {
	opts = append([]nats.Option{nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		p.logger.Error("NATS", "error", err)
	})}, opts...)
	if p.cluster != nil {
		return p.cluster.Connect(opts...)
	}
	return p.server.Connect(opts...)
}

// NATSURL is where clients of other processes find the server, "" for nowhere; the nodes of a cluster by commas.
func (p *Pipeline) NATSURL() string {
	if p.cluster != nil {
		return strings.ReplaceAll(p.cluster.URLs(), ", ", ",")
	}
	return p.server.URL()
}

// Stop ends everything, in the reverse order, and waits for it.
func (p *Pipeline) Stop() error {
	errs := make([]error, 0, len(p.Enrichers)+len(p.Importers)+len(p.Notifiers)+len(p.exports)+1)
	for _, n := range p.Notifiers {
		errs = append(errs, n.Stop())
	}
	if p.rulesDir != "" {
		errs = append(errs, os.RemoveAll(p.rulesDir))
	}
	for _, i := range p.Importers {
		errs = append(errs, i.Stop())
	}
	for _, e := range p.Enrichers {
		errs = append(errs, e.Stop())
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout) //nolint:forbidigo // the caller's may be over
	defer cancel()
	for _, x := range p.exports {
		errs = append(errs, x.Stop(ctx))
	}
	for _, nc := range p.Conns {
		nc.Close()
	}
	if p.cluster != nil {
		p.cluster.Stop()
	}
	if p.server != nil {
		p.server.Stop()
	}
	return errors.Join(errs...)
}
