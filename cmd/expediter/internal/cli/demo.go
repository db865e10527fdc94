package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
)

// errBroken is returned when an invariant did not hold in the demo.
var errBroken = errors.New("a promise was broken")

func newDemo(g *globals) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything in this process on sample data, and check the guarantees",
		Long: `Demo starts an embedded NATS server, two enrichers, two importers and two notifiers, has many users ask for overlapping
places and import the same recipe videos at the same moment, publishes every event twice, and checks the outcome with
evidence from outside the services: the stream with the jobs, the requests at the provider and at the site of the videos,
and the delivered letters. It takes a few seconds, needs no network and leaves no files behind. The exit code is 1 when a
guarantee was broken, and the message says which.`,
		Example: `  expediter demo
  expediter demo --json | tail -1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := g.config.Demo(cmd.Context(), demo.Config{Logger: g.logger, Out: cmd.OutOrStdout()})
			return conclude(cmd.OutOrStdout(), report, err, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with the figures as one line of JSON")
	return cmd
}

// conclude ends the account, also the one of a demo that did not run to its end.
func conclude(out io.Writer, report demo.Report, err error, asJSON bool) error {
	if err != nil {
		report.OK, report.Error = false, err.Error()
	}
	if asJSON {
		line, encodeErr := json.Marshal(report)
		if encodeErr != nil {
			return fmt.Errorf("encode the report: %w", encodeErr)
		}
		if _, writeErr := fmt.Fprintf(out, "%s\n", line); writeErr != nil {
			return errors.Join(err, fmt.Errorf("write the report: %w", writeErr))
		}
	}
	switch {
	case err != nil:
		return err
	case !report.OK:
		return fmt.Errorf("%w: %s", errBroken, strings.Join(report.Broken, "; "))
	}
	return nil
}
