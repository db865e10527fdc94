// Package pipeline runs all services of Expediter in this process, on an embedded NATS server, and has sample data for them.
//
// The sample of the enricher's work is written by hand: places as a search would return them, the searches,
// and a catalogue of venues. Names, addresses and ratings are fiction, and the telephone
// numbers are from ranges that are never assigned.
//
// Most places are in the catalogue under another spelling, in another script, or can be recognised by telephone or
// position only. Some are not in it, although a venue with a similar name is near. A few may be any of several
// branches.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// MaxReplicas is the largest number of nodes of a cluster that keep a copy of each stream. The server allows no more.
const MaxReplicas = 5

// Config is the configuration of a pipeline.
type Config struct {
	// Dir keeps the streams after the end of the process. Defaults to a temporary directory.
	Dir string

	// Enrichers has the listen address of each instance of the enricher, "-" for an instance that does not listen.
	// Defaults to one instance that does not listen.
	Enrichers []string

	// Importer is the configuration of the importers. The pipeline overwrites the settings that all services share.
	// Defaults to the importer's own defaults.
	Importer importer.Config

	// Importers has the listen address of each instance of the importer, "-" for an instance that does not listen.
	// Defaults to no instance.
	Importers []string

	// Logger gets the log of the services. Defaults to slog.Default().
	Logger *slog.Logger

	// NATSPort is the port on which the server listens, 0 for a free port, -1 for none. Nodes of a cluster always listen
	// on free ports. Defaults to 0.
	NATSPort int

	Nodes    int             // the number of servers: 1, or 3 and more for a cluster; defaults to 1
	Notifier notifier.Config // the configuration of the notifiers; the pipeline overwrites the settings that all services share

	// Notifiers has the listen address of each instance of the notifier, "-" for an instance that does not listen.
	// Defaults to no instance.
	Notifiers []string

	// Provider answers for all places. Required.
	Provider provider.Provider

	// Rules are the rules of the notifiers. Defaults to the file that Notifier names, and without one to the sample's, for recipients that
	// the pipeline then adds.
	Rules []byte

	// ServerLogger gets the log of the NATS servers, most of which is about normal events, such as nodes of a cluster that
	// find each other. Defaults to none.
	ServerLogger *slog.Logger
}

// Pipeline is a running server with running services.
type Pipeline struct {
	Conns     []*nats.Conn         // the connections of the instances, one each
	Enrichers []*enricher.Enricher // the instances of the enricher
	Importers []*importer.Importer // the instances of the importer
	Notifiers []*notifier.Notifier // the instances of the notifier

	cluster *natsrun.Cluster
	logger  *slog.Logger
	exports []*export.Exports // one for each service, with its metrics
	server  *natsrun.Server
	stops   []func() error // of the instances

	rulesDir *private.Folder // nil for rules that are a file already
}

// Start runs the server and the services. The caller calls Stop.
func Start(ctx context.Context, cfg Config) (*Pipeline, error) {
	if cfg.Enrichers == nil {
		cfg.Enrichers = []string{"-"}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
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
	if err := p.apply(ctx); err != nil {
		return err
	}
	var err error
	none := service.BaseConfig{}
	startEnricher := func(nc *nats.Conn, base service.BaseConfig) (*enricher.Enricher, error) {
		return enricher.Start(ctx, nc, enricher.Config{BaseConfig: base, Enabled: true, Providers: []provider.Provider{cfg.Provider}})
	}
	p.Enrichers, err = launch(ctx, p, cfg, "enricher", cfg.Enrichers, none, startEnricher)
	if err != nil {
		return err
	}
	own := cfg.Importer.BaseConfig
	startImporter := func(nc *nats.Conn, base service.BaseConfig) (*importer.Importer, error) {
		settings := cfg.Importer
		settings.BaseConfig = base
		return importer.Start(ctx, nc, settings)
	}
	p.Importers, err = launch(ctx, p, cfg, "importer", cfg.Importers, own, startImporter)
	if err != nil {
		return err
	}
	return p.startNotifiers(ctx, cfg)
}

// launch starts the instances of a service, each with its listen address. Stop ends them in the opposite order.
func launch[S interface{ Stop() error }](
	ctx context.Context, p *Pipeline, cfg Config, name string, listens []string, settings service.BaseConfig,
	start func(*nats.Conn, service.BaseConfig) (S, error),
) (all []S, err error) {
	for i, listen := range listens {
		nc, base, err := p.prepare(ctx, cfg, name, i+1, listen, settings)
		if err != nil {
			return all, err
		}
		started, err := start(nc, base)
		if err != nil {
			return all, fmt.Errorf("start %s %d: %w", name, i+1, err)
		}
		all, p.stops = append(all, started), append(p.stops, started.Stop)
	}
	return all, nil
}

// prepare connects the n-th instance of a service, and completes its settings.
func (p *Pipeline) prepare(
	ctx context.Context, cfg Config, name string, n int, listen string, base service.BaseConfig,
) (*nats.Conn, service.BaseConfig, error) {
	nc, err := p.Connect(nats.Name(fmt.Sprintf("%s-%d", name, n)))
	if err != nil {
		return nil, base, fmt.Errorf("connect %s %d: %w", name, n, err)
	}
	p.Conns = append(p.Conns, nc)
	exports, err := export.Start(ctx, export.Config{Service: name})
	if err != nil {
		return nil, base, fmt.Errorf("start %s %d: %w", name, n, err)
	}
	p.exports = append(p.exports, exports)
	base.CreateAssets, base.Exports, base.Listen, base.Logger = true, exports, listen, cfg.Logger.With("instance", n)
	base.Replicas, base.UpdateConsumers = p.replicas(), true
	return nc, base, nil
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

// apply makes the streams and buckets, and updates those that are there to their declarations.
func (p *Pipeline) apply(ctx context.Context) error {
	nc, err := p.Connect(nats.Name("expediter"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	_, err = provision.Apply(ctx, js, contracts.Assets(contracts.AssetOptions{Replicas: p.replicas()}), provision.Options{})
	return err
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

// NATSURL returns the address of the server for other processes, "" for none; the addresses of a cluster are
// separated by commas.
func (p *Pipeline) NATSURL() string {
	if p.cluster != nil {
		return p.cluster.URLs()
	}
	return p.server.URL()
}

// Stop ends the services, all at the same time since each waits for what it has asked the server for, and then the server, and waits for
// them.
func (p *Pipeline) Stop() error {
	errs := make([]error, len(p.stops), len(p.stops)+len(p.exports)+1)
	var stopping sync.WaitGroup
	for i, stop := range p.stops {
		stopping.Go(func() { errs[i] = stop() })
	}
	stopping.Wait()
	if p.rulesDir != nil {
		errs = append(errs, p.rulesDir.Remove())
	}
	for _, x := range p.exports {
		errs = append(errs, service.StopExports(context.Background(), x)) //nolint:forbidigo // the caller's may be over
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

func (p *Pipeline) startNotifiers(ctx context.Context, cfg Config) (err error) {
	settings := cfg.Notifier
	samples := len(cfg.Notifiers) > 0 && settings.Rules == "" && cfg.Rules == nil
	if samples {
		cfg.Rules = Rules()
	}
	if cfg.Rules != nil {
		if settings.Rules, err = p.writeRules(cfg.Rules); err != nil {
			return err
		}
	}
	own := settings.BaseConfig
	start := func(nc *nats.Conn, base service.BaseConfig) (*notifier.Notifier, error) {
		settings := settings
		settings.BaseConfig = base
		return notifier.Start(ctx, nc, settings)
	}
	p.Notifiers, err = launch(ctx, p, cfg, "notifier", cfg.Notifiers, own, start)
	if err != nil || !samples {
		return err
	}
	return enlist(ctx, p.Notifiers[0].Directory)
}

// enlist adds the sample's recipients to the directory. A recipient of an earlier run stays unchanged, even if it was
// erased.
func enlist(ctx context.Context, directory *recipient.Directory) error {
	for _, r := range Recipients() {
		_, found, err := directory.Get(ctx, r.RecipientType, r.UserID)
		if errors.Is(err, recipient.ErrForgotten) {
			continue
		}
		if err == nil && !found {
			err = directory.Put(ctx, r, Restaurant)
		}
		if err != nil {
			return fmt.Errorf("write the sample's recipients: %w", err)
		}
	}
	return nil
}

// writeRules writes rules into a file that exists until Stop.
func (p *Pipeline) writeRules(rules []byte) (path string, err error) {
	const prefix = "expediter-rules-"
	if err = private.Sweep(os.TempDir(), prefix); err == nil {
		p.rulesDir, err = private.Make(os.TempDir(), prefix)
	}
	if err == nil {
		path = filepath.Join(p.rulesDir.Path, "rules.yaml")
		err = os.WriteFile(path, rules, 0o600)
	}
	if err != nil {
		err = fmt.Errorf("write the rules: %w", err)
	}
	return path, err
}
