package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newJobsShow(f *jobsFlags) *cobra.Command {
	cmd := f.listing("show JOB", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error {
			job, err := client.Job(ctx, f.ref(args[0]))
			if err != nil {
				return err
			}
			return f.show(job, format)
		})
	}, textFormats...)
	f.keyFlag(cmd)
	return cmd
}

func (f *jobsFlags) show(j worker.StoredJob, format string) error {
	if format == "json" {
		return f.writeLine(j)
	}
	attempt, by, failure := lastTry(j)
	var text details
	line := text.line
	line("job", j.ID)
	line("subject", j.Subject)
	line("state", string(j.State))
	line("stored", fmt.Sprintf("%s, sequence %d of %s", stamp(j.Since), j.Sequence, j.Stream))
	line("next", stampOf(j.Due))
	line("consumer", cmp.Or(j.Consumer, "none: no worker takes it"))
	if attempt > 0 {
		line("attempt", fmt.Sprintf("%d, worker %s", attempt, by))
	}
	if j.Progress != nil {
		line("progress", fmt.Sprintf("%s %s", stamp(j.Progress.At), j.Progress.Value))
	}
	text.section("error", failure)
	text.section("headers", headerLines(j.Header))
	text.section(fmt.Sprintf("payload (%d bytes)", len(j.Payload)), readable(j.Payload))
	return f.say("%s", text.String())
}

func newJobsCancel(jobs *jobsFlags) *cobra.Command {
	f := &jobsAllFlags{jobsFlags: jobs}
	return f.command("cancel [JOB]", func(ctx context.Context, client *worker.Client, args []string) error {
		return f.act(ctx, client, operate.CancelJobs, args)
	})
}

func newJobsRun(jobs *jobsFlags) *cobra.Command {
	f, schedule := &jobsAllFlags{jobsFlags: jobs}, false
	cmd := f.command("run [JOB]", func(ctx context.Context, client *worker.Client, args []string) error {
		if !schedule || f.all {
			return f.act(ctx, client, operate.RunJobs, args)
		}
		return f.schedule(ctx, client, args[0], f.yes, "run", "run", func(ctx context.Context, s worker.Scheduled) (string, error) {
			run, err := client.RunSchedule(ctx, s.Subject)
			return fmt.Sprintf("Job %d is queued.", run.Sequence), err
		})
	})
	cmd.Flags().BoolVar(&schedule, "schedule", false, "insert a run of a schedule")
	return cmd
}

func newJobsUnschedule(f *jobsFlags) *cobra.Command {
	var yes bool
	cmd := f.doing("unschedule SUBJECT", func(ctx context.Context, client *worker.Client, args []string) error {
		const would = "end the schedule of"
		return f.schedule(ctx, client, args[0], yes, "unschedule", would, func(ctx context.Context, s worker.Scheduled) (string, error) {
			return "Ended the schedule of " + terminal.Printable(args[0]) + ".", client.Unschedule(ctx, s.Subject)
		})
	})
	yesFlag(cmd, &yes)
	return cmd
}

// schedule acts on the schedule of a subject, and says what act returns.
func (f *jobsFlags) schedule(
	ctx context.Context, client *worker.Client, subject string, yes bool, action, would string,
	act func(context.Context, worker.Scheduled) (string, error),
) error {
	all, err := client.Schedules(ctx)
	at := slices.IndexFunc(all, func(s worker.Scheduled) bool { return s.Subject == subject })
	switch {
	case at < 0:
		return errors.Join(err, fmt.Errorf("%w: no schedule inserts jobs on %q", ErrNotFound, subject))
	case !yes:
		next, _ := all[at].Next(time.Now()) // of another program
		return f.would("%s %s, whose next run is due %s.", would, terminal.Printable(subject), stampOf(next))
	}
	said := ""
	err = f.acted(ctx, action, fmt.Sprintf("schedule %q of %s", subject, f.stream), func(ctx context.Context) (err error) {
		said, err = act(ctx, all[at])
		return err
	})
	if err != nil {
		return err
	}
	return f.say("%s\n", said)
}
