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
		Use:   "accounts",
		Short: "Print accounts.conf with the permissions for partitions",
		Long: `Accounts prints the accounts.conf of deploy/nats, of this version, with the permissions for the partitions of "expediter apply
--partitions": their streams, subjects and consumers. Put it in force on all servers before they are divided. Compare your own additions
by hand.`,
		Example: `  expediter accounts --partitions 4 > accounts.conf`,
		Args:    cobra.NoArgs,
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
