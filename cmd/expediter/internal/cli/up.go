package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

// upFlags are the flags of the up command.
type upFlags struct {
	catalog  string
	cluster  int
	dir      string
	httpPort int
	natsPort int
}

func newUp(g *globals) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything in this process until it is interrupted",
		Long: `Up starts an embedded NATS server and two enrichers, and stays up until it is interrupted. Without --catalog the
venues are those of the sample. Without --dir nothing is kept.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return g.up(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.catalog, "catalog", "", "venue file to match against (default the sample's)")
	flags.IntVar(&f.cluster, "cluster", 1, "NATS servers: 1, or 3 and more for a cluster")
	flags.StringVar(&f.dir, "dir", "", "directory that keeps the streams")
	flags.IntVar(&f.httpPort, "http-port", 8080, "port of the first enricher, 0 for a free one; the second takes a free one")
	flags.IntVar(&f.natsPort, "nats-port", 4222, "port of the NATS server, 0 for a free one")
	return cmd
}

func (g *globals) up(cmd *cobra.Command, f upFlags) (err error) {
	if f.cluster != 1 && (f.cluster < 3 || f.cluster > 9) {
		return &UsageError{Err: fmt.Errorf("--cluster %d: want 1, or 3 to 9", f.cluster)}
	}
	venues, err := openCatalog(f.catalog)
	if err != nil {
		return err
	}
	p, err := pipeline.Start(cmd.Context(), pipeline.Config{
		Dir: f.dir, Enrichers: []string{"127.0.0.1:" + strconv.Itoa(f.httpPort), "127.0.0.1:0"}, Logger: g.logger,
		NATSPort: f.natsPort, Nodes: f.cluster, Provider: venues,
	})
	if err != nil {
		return fmt.Errorf("%w (is another one up? try --http-port 0 --nats-port 0)", err)
	}
	if err := greet(cmd.OutOrStdout(), p); err != nil {
		return fmt.Errorf("%w; %w", err, p.Stop())
	}
	<-cmd.Context().Done()
	return p.Stop() //nolint:wrapcheck // says what failed
}

// openCatalog opens a venue file, or the sample's when there is no path.
func openCatalog(path string) (*catalog.Catalog, error) {
	if path == "" {
		return catalog.Read(sample.Catalog(), catalog.Config{Name: contracts.ProviderWolt}) //nolint:wrapcheck // names the row
	}
	return catalog.Open(path, catalog.Config{Name: contracts.ProviderWolt}) //nolint:wrapcheck // names the file
}

// greet tells where everything is, and three lines to paste.
func greet(out io.Writer, p *pipeline.Pipeline) error {
	http, nats := p.Enrichers[0].URL(), p.NATSURL()
	server, _, _ := strings.Cut(nats, ",")
	const body = `{"requestId":"hello","cityText":"Tel Aviv","results":[{"placeId":"p1","name":"פיצה האוס","address":"דיזנגוף 5"}]}`
	_, err := fmt.Fprintf(out, `HTTP   %s   %s
NATS   %s

Ask, follow what becomes of it, and ask over NATS:

  curl -s '%s/v1/enrich' -d '%s'
  curl -sN '%s/v1/requests/hello/events'
  nats --server %s request enricher.v1.enrich '%s'

Interrupt (Ctrl-C) to stop.
`, http, p.Enrichers[1].URL(), nats, http, body, http, server, body)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
