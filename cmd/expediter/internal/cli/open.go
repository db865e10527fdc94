package cli

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
)

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
