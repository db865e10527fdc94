package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newJobsGrow(f *jobsFlags) *cobra.Command {
	partitions := 0
	cmd := &cobra.Command{
		Use:  "grow",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if partitions < 2 || partitions > worker.MaxPartitions {
				return usage(fmt.Errorf("--partitions %d: want 2 to %d", partitions, worker.MaxPartitions))
			}
			declared := contracts.Assets(contracts.AssetOptions{})
			if slices.ContainsFunc(declared, func(cfg jetstream.StreamConfig) bool { return cfg.Name == f.stream }) {
				return usage(fmt.Errorf("--stream %s: a service declares it: see expediter apply --partitions", f.stream))
			}
			f.partitions = partitions
			return f.use(cmd.Context(), func(client *worker.Client) error { return f.grow(cmd.Context(), client) })
		},
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "into how many streams, for good")
	return cmd
}

func (f *jobsFlags) grow(ctx context.Context, client *worker.Client) error {
	target := fmt.Sprintf("stream %s to %d partitions", f.stream, f.partitions)
	err := f.acted(ctx, "grow", target, func(ctx context.Context) error { return client.Grow(ctx, f.noteLeft) })
	if drift := (&worker.DriftError{}); errors.As(err, &drift) {
		return &UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	return f.say("Divided %s into %d partitions.\n", f.stream, f.partitions)
}

// noteLeft writes a line about the job that a division waits for.
func (f *jobsFlags) noteLeft(subject string, sequence uint64) {
	f.notef("Divided already, but message %d, %s, is another partition's: waits until it has gone. It may be a job, a delayed one, or the "+
		"record of one that is kept.\n", sequence, terminal.Printable(subject))
}
