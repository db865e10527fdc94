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

func newJobsWatch(f *jobsFlags) *cobra.Command {
	cmd := f.listing("watch JOB", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error { return f.watch(ctx, client, args[0], format) })
	}, "text", jsonLines)
	f.keyFlag(cmd)
	return cmd
}

// watch writes the state of a job at each change until the job has ended. A job that no longer exists has ended too.
func (f *jobsFlags) watch(ctx context.Context, client *worker.Client, name, format string) error {
	ref, last := f.ref(name), ""
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		job, err := client.Job(ctx, ref)
		if errors.Is(err, worker.ErrNoJob) && last != "" {
			f.notef("The job has ended, and nothing is kept of it.\n")
			return nil
		}
		if err != nil {
			return err
		}
		ref = operate.RefsOf(job)[0]
		if line := watchLine(job); line != last {
			last = line
			if err := f.writeWatched(job, line, format); err != nil {
				return err
			}
		}
		switch job.State {
		case worker.StateDone:
			return nil
		case worker.StateDead, worker.StateCancelled:
			return fmt.Errorf("the job is %s", job.State)
		default:
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil // an interrupt is the usual end
		}
	}
}

// watchLine describes the progress of a job.
func watchLine(j worker.StoredJob) string {
	attempt, by, failure := lastTry(j)
	line := string(j.State)
	if attempt > 0 {
		line += fmt.Sprintf(", attempt %d, worker %s", attempt, by)
	}
	if !j.Due.IsZero() {
		line += ", next " + stamp(j.Due)
	}
	if j.Progress != nil && len(j.Progress.Value) > 0 {
		line += ", progress " + string(j.Progress.Value)
	}
	if failure != "" {
		line += ": " + firstLine(failure)
	}
	return line
}

func (f *jobsFlags) writeWatched(j worker.StoredJob, line, format string) error {
	if format == jsonLines {
		return f.writeLine(listed(j))
	}
	return f.say("%s  %s\n", stamp(time.Now()), terminal.Printable(line))
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
