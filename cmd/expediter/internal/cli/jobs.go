package cli

import "github.com/spf13/cobra"

// jobsFlags are the flags of all commands about jobs.
type jobsFlags struct {
	natsFlags

	stream string
}

func newJobs(g *globals) *cobra.Command {
	f := &jobsFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Look at jobs and at the workers that run them",
		Long:  `Jobs shows the workers that run, and what they do. What failed for good is a dead letter: expediter dead.`,
		Example: `  expediter jobs workers
  expediter jobs workers vm-3-812-4Kx0 --stacks`,
	}
	flags := cmd.PersistentFlags()
	f.register(flags)
	f.registerAccount(flags)
	flags.StringVar(&f.stream, "stream", "", "stream of the jobs")
	cmd.AddCommand(newJobsWorkers(f))
	return cmd
}
