package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newAccounts(g *globals) *cobra.Command {
	partitions := 1
	cmd := &cobra.Command{
		Use:  "accounts",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if partitions < 1 || partitions > worker.MaxPartitions {
				return usage(fmt.Errorf("--partitions %d: want 1 to %d", partitions, worker.MaxPartitions))
			}
			text, err := deploy.Text("accounts.conf")
			if err != nil {
				return err
			}
			return g.say("%s", deploy.Divide(text, partitions))
		},
	}
	cmd.Flags().IntVar(&partitions, "partitions", 1, "into how many streams the work of each service is divided")
	return cmd
}
