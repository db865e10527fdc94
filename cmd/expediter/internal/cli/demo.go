package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
)

// errBroken is returned when an invariant did not hold in the demo. The account says which.
var errBroken = errors.New("an invariant did not hold")

func newDemo(g *globals) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything in this process on sample data, and check what is promised",
		Long: `Demo starts an embedded NATS server and two enrichers, has many users ask for overlapping places at the same
moment, and checks what came of it with witnesses beside the services: the stream that holds the jobs, and the provider
that is asked. Nothing is left behind. The exit code is 1 when an invariant did not hold.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			report, err := demo.Run(cmd.Context(), out, g.logger)
			if err != nil {
				return err //nolint:wrapcheck // says what failed
			}
			if asJSON {
				line, err := json.Marshal(report)
				if err != nil {
					return fmt.Errorf("encode the report: %w", err)
				}
				fmt.Fprintf(out, "%s\n", line) //nolint:errcheck // nobody to tell
			}
			if !report.OK {
				return fmt.Errorf("%w: %q", errBroken, report.Broken)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with the figures as one line of JSON")
	return cmd
}
