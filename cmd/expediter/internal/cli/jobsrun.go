package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newJobsRun(f *jobsFlags) *cobra.Command {
	var schedule, yes bool
	cmd := &cobra.Command{
		Use:   "run JOB",
		Short: "Run a delayed job now, or a run of a schedule",
		Long: `Run makes a delayed job due at once. With --schedule JOB is the subject of a schedule, as expediter schedules lists it, and a
further run of it is inserted. Without --yes it shows the job and changes nothing.`,
		Example: `  expediter jobs run --stream MAILS 88121 --yes
  expediter jobs run --stream REPORTS jobs.report.digest --schedule --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.use(cmd.Context(), func(client *worker.Client) error {
				if schedule {
					return f.runSchedule(cmd.Context(), client, args[0], yes)
				}
				return f.run(cmd.Context(), client, args[0], yes)
			})
		},
	}
	f.keyFlag(cmd)
	cmd.Flags().BoolVar(&schedule, "schedule", false, "insert a run of a schedule")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (f *jobsFlags) run(ctx context.Context, client *worker.Client, name string, yes bool) error {
	job, err := client.Job(ctx, f.ref(name))
	switch {
	case err != nil:
		return err
	case job.State != worker.StateScheduled:
		return fmt.Errorf("job %d is %s: only a delayed job can be run now", job.Sequence, job.State)
	case !yes:
		return f.say("Would run job %d, %s, which is due %s. Nothing was changed: add --yes to do it.\n",
			job.Sequence, table.Printable(job.Subject), stamp(job.Due))
	}
	err = f.audited(ctx, f.js, "run", fmt.Sprintf("job %s:%d", f.stream, job.Sequence), func(ctx context.Context) (int, error) {
		_, err := client.RunNow(ctx, refOf(job))
		return 1, err
	})
	if err != nil {
		return err
	}
	return f.say("Job %d, which was due %s, is queued.\n", job.Sequence, stamp(job.Due))
}

func (f *jobsFlags) say(format string, args ...any) error {
	_, err := fmt.Fprintf(f.config.Stdout, format, args...)
	return wrapWrite(err)
}

// scheduled returns the schedule of a subject.
func scheduled(ctx context.Context, client *worker.Client, subject string) (worker.Scheduled, error) {
	all, err := client.Schedules(ctx)
	for _, s := range all {
		if s.Subject == subject {
			return s, nil
		}
	}
	return worker.Scheduled{}, errors.Join(err, fmt.Errorf("%w: no schedule inserts jobs on %q", ErrNotFound, subject))
}

func (f *jobsFlags) runSchedule(ctx context.Context, client *worker.Client, subject string, yes bool) error {
	s, err := scheduled(ctx, client, subject)
	switch {
	case err != nil:
		return err
	case !yes:
		next, _ := s.Next(time.Now()) //nolint:errcheck // of another program
		return f.say("Would run %s, whose next run is due %s. Nothing was changed: add --yes to do it.\n",
			table.Printable(subject), stampOf(next))
	}
	var run worker.Receipt
	err = f.audited(ctx, f.js, "run", fmt.Sprintf("schedule %q of %s", subject, f.stream), func(ctx context.Context) (int, error) {
		run, err = client.RunSchedule(ctx, subject)
		return 1, err
	})
	if err != nil {
		return err
	}
	return f.say("Job %d is queued.\n", run.Sequence)
}

func newJobsUnschedule(f *jobsFlags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "unschedule SUBJECT",
		Short: "End a schedule",
		Long: `Unschedule removes the schedule that inserts jobs on SUBJECT, as expediter schedules lists it. The jobs that it has inserted
stay. Without --yes it shows the schedule and changes nothing.`,
		Example: `  expediter jobs unschedule --stream REPORTS jobs.report.digest --yes`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.use(cmd.Context(), func(client *worker.Client) error { return f.unschedule(cmd.Context(), client, args[0], yes) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (f *jobsFlags) unschedule(ctx context.Context, client *worker.Client, subject string, yes bool) error {
	s, err := scheduled(ctx, client, subject)
	if err != nil {
		return err
	}
	if !yes {
		next, _ := s.Next(time.Now()) //nolint:errcheck // of another program
		return f.say("Would end the schedule of %s, whose next run is due %s. Nothing was changed: add --yes to do it.\n",
			table.Printable(subject), stampOf(next))
	}
	err = f.audited(ctx, f.js, "unschedule", fmt.Sprintf("schedule %q of %s", subject, f.stream), func(ctx context.Context) (int, error) {
		of, name := s.Name()
		return 1, client.Unschedule(ctx, of, name)
	})
	if err != nil {
		return err
	}
	return f.say("Ended the schedule of %s.\n", table.Printable(subject))
}
