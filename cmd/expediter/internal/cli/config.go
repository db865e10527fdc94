package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
)

// Config is the environment of the command line program. The zero value is the program as a person runs it, except for
// OpenEnricher.
type Config struct {
	// Demo runs the demo. Defaults to demo.Run.
	Demo func(context.Context, demo.Config) (demo.Report, error)

	// Environ lists the environment, as doctor looks through it. Defaults to os.Environ.
	Environ func() []string

	// Getenv reads the environment. Defaults to os.Getenv.
	Getenv func(string) string

	// OpenEnricher makes the enricher of the enrich command. Defaults to none: the command then ends with
	// ExitUnavailable.
	OpenEnricher OpenEnricher

	// Stderr takes log lines, the progress bar and error messages. Defaults to os.Stderr.
	Stderr io.Writer

	// Stdin is read for the file "-". Defaults to os.Stdin.
	Stdin io.Reader

	// Stdout takes results. Defaults to os.Stdout.
	Stdout io.Writer
}

// OpenEnricher starts a pipeline, or connects to a service, as the flags of the enrich command say. The caller calls
// stop once, when it needs the enricher no more; stop waits for everything that was started.
type OpenEnricher func(ctx context.Context, opts EnricherOptions) (e enrich.Enricher, stop func() error, err error)

// EnricherOptions are the flags of the enrich command that concern the enricher.
type EnricherOptions struct {
	// Catalog is the path of the venue file to match against. Empty when there is none.
	Catalog string

	// Key is the key with which a running enricher is asked. Empty for none.
	Key string

	// Logger takes the enricher's log lines.
	Logger *slog.Logger

	// ServerLogger takes the log lines of an embedded NATS server; nil discards them.
	ServerLogger *slog.Logger

	// URL is where a running enricher is. Empty for an embedded one.
	URL string
}

func (c Config) withDefaults() Config {
	if c.Demo == nil {
		c.Demo = demo.Run
	}
	if c.Environ == nil {
		c.Environ = os.Environ
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	return c
}

func (c Config) stdout() terminal.Stream { return terminal.New(c.Stdout, c.Getenv) }
func (c Config) stderr() terminal.Stream { return terminal.New(c.Stderr, c.Getenv) }

// resultTTL is how long the embedded pipeline keeps a result that has been written to the output already. It only has to
// outlast the moment in between, and any stop of this process.
const resultTTL = time.Minute

// OpenPipeline is the OpenEnricher of the program: a running service when there is a URL, and a pipeline in this process
// otherwise.
func OpenPipeline(ctx context.Context, opts EnricherOptions) (enrich.Enricher, func() error, error) {
	if opts.URL != "" {
		return pipeline.Remote{Key: opts.Key, URL: opts.URL}, func() error { return nil }, nil
	}
	venues, err := openCatalog(opts.Catalog)
	if err != nil {
		return nil, nil, err
	}
	if opts.Catalog == "" {
		opts.Logger.WarnContext(ctx, "no --catalog and no --url: places are matched against the made-up venues of the sample")
	}
	p, err := pipeline.Start(ctx, pipeline.Config{
		Logger: opts.Logger, NATSPort: -1, Provider: venues, ResultTTL: resultTTL, ServerLogger: opts.ServerLogger,
	})
	if err != nil {
		return nil, nil, err
	}
	return pipeline.Embedded{Pipeline: p}, p.Stop, nil
}
