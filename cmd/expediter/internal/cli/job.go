package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newJobsShow(f *jobsFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show everything about one job",
		Long: `Show writes the state of a job, the last record of its worker, its error, its result, its headers and its payload. It exits
with 3 when there is no such job: one that is done and not kept is gone.`,
		Example: `  expediter jobs show --stream IMPORT_JOBS 88121
  expediter jobs show --stream MAILS jobs.mail --key ada -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json"); err != nil {
				return err
			}
			return f.use(cmd.Context(), func(client *worker.Client) error {
				job, err := client.Job(cmd.Context(), f.ref(args[0]))
				if err != nil {
					return err
				}
				return f.show(job, format)
			})
		},
	}
	f.keyFlag(cmd)
	outputFlag(cmd, &format, "text", "json")
	return cmd
}

func (f *jobsFlags) show(j worker.StoredJob, format string) error {
	row := newJobRow(j)
	if format == "json" {
		return f.writeLine(struct {
			jobRow

			Progress *worker.Progress   `json:"progress,omitempty"`
			Letter   *worker.DeadLetter `json:"letter,omitempty"`
			Result   json.RawMessage    `json:"result,omitempty"`
			Header   nats.Header        `json:"header,omitempty"`
			Payload  []byte             `json:"payload,omitempty"`
		}{row, j.Progress, j.Letter, j.Result, j.Header, j.Payload})
	}
	var text details
	line := text.line
	line("job", row.ID)
	line("subject", row.Subject)
	line("state", string(row.State))
	line("stored", fmt.Sprintf("%s, sequence %d of %s", stamp(row.Since), row.Sequence, row.Stream))
	line("next", stampOf(row.Due))
	line("consumer", cmp.Or(row.Consumer, "none: no worker takes it"))
	if row.Attempt > 0 {
		line("attempt", fmt.Sprintf("%d, worker %s", row.Attempt, row.Worker))
	}
	if j.Progress != nil {
		line("progress", fmt.Sprintf("%s %s", stamp(j.Progress.At), j.Progress.Value))
	}
	text.section("error", row.Error)
	text.section("result", string(j.Result))
	text.section("headers", headerLines(j.Header))
	text.section(fmt.Sprintf("payload (%d bytes)", len(j.Payload)), readable(j.Payload))
	return f.say("%s", text.String())
}

func newJobsWatch(f *jobsFlags) *cobra.Command {
	var format string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Follow one job until it ends",
		Long: `Watch writes a line whenever the state of a job has changed, its attempt or its worker's record of it, until it has
ended. It exits with 1 when the job is dead or was cancelled.`,
		Example: `  expediter jobs watch --stream IMPORT_JOBS 88121`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "jsonl"); err != nil {
				return err
			}
			if every < 100*time.Millisecond {
				return usage(fmt.Errorf("--every %s: want 100ms or more", every))
			}
			return f.use(cmd.Context(), func(client *worker.Client) error { return f.watch(cmd.Context(), client, args[0], every, format) })
		},
	}
	f.keyFlag(cmd)
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two looks")
	outputFlag(cmd, &format, "text", "jsonl")
	return cmd
}

// watch looks at a job again and again. One that is gone has ended, and nothing is kept of it.
func (f *jobsFlags) watch(ctx context.Context, client *worker.Client, name string, every time.Duration, format string) error {
	ref, last := f.ref(name), ""
	again := time.NewTicker(every)
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
		ref = refOf(job)
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
			return nil // interrupted, as it is meant to be
		}
	}
}

// watchLine says how far a job is.
func watchLine(j worker.StoredJob) string {
	row := newJobRow(j)
	line := string(row.State)
	if row.Attempt > 0 {
		line += fmt.Sprintf(", attempt %d, worker %s", row.Attempt, row.Worker)
	}
	if !row.Due.IsZero() {
		line += ", next " + stamp(row.Due)
	}
	if j.Progress != nil && len(j.Progress.Value) > 0 {
		line += ", progress " + string(j.Progress.Value)
	}
	if row.Error != "" {
		line += ": " + firstLine(row.Error)
	}
	if len(j.Result) > 0 {
		line += ": " + string(j.Result)
	}
	return line
}

func (f *jobsFlags) writeWatched(j worker.StoredJob, line, format string) error {
	if format == "jsonl" {
		return f.writeLine(newJobRow(j))
	}
	return f.say("%s  %s\n", stamp(time.Now()), table.Printable(line))
}

func newJobsCancel(jobs *jobsFlags) *cobra.Command {
	f, yes := &jobsAllFlags{jobsFlags: jobs}, false
	cmd := &cobra.Command{
		Use:   "cancel [JOB]",
		Short: "Cancel a job, unique or not, or all that match",
		Long: `Cancel removes a job that waits, is delayed or runs. The context of its handler ends within a third of AckWait; one that has
returned by then has done its work. A cancelled job is no dead letter. Without --yes it shows the job and changes nothing.

` + allHelp,
		Example: `  expediter jobs cancel --stream IMPORT_JOBS 88121 --yes
  expediter jobs cancel --stream IMPORT_JOBS --all --state queued --subject 'jobs.import.*.u7'
  expediter jobs cancel --stream IMPORT_JOBS --all --state queued --subject 'jobs.import.*.u7' --count 31`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return f.use(cmd.Context(), func(client *worker.Client) error {
				if f.all {
					return f.act(cmd.Context(), client, cancelMany)
				}
				return f.cancel(cmd.Context(), client, args[0], yes)
			})
		},
	}
	f.register(cmd)
	f.keyFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (f *jobsFlags) cancel(ctx context.Context, client *worker.Client, name string, yes bool) error {
	job, err := client.Job(ctx, f.ref(name))
	if err != nil {
		return err
	}
	switch {
	case isEnded(job):
		return fmt.Errorf("job %d is %s: it has ended", job.Sequence, job.State)
	case !yes:
		return f.say("Would cancel job %d, %s, which is %s. Nothing was changed: add --yes to do it.\n",
			job.Sequence, table.Printable(job.Subject), job.State)
	}
	// A subject may hold data of a user.
	err = f.audited(ctx, f.js, "cancel", fmt.Sprintf("job %s:%d", job.Stream, job.Sequence), func(ctx context.Context) (int, error) {
		if job, err = client.CancelJob(ctx, refOf(job)); err != nil || isEnded(job) {
			return 0, err
		}
		return 1, nil
	})
	switch {
	case err != nil:
		return err
	case isEnded(job):
		return fmt.Errorf("job %d is %s: it has ended meanwhile", job.Sequence, job.State)
	}
	return f.say("Cancelled job %d, which was %s.\n", job.Sequence, job.State)
}

// isEnded reports whether a job will not run any more.
func isEnded(j worker.StoredJob) bool {
	return j.State == worker.StateDone || j.State == worker.StateDead || j.State == worker.StateCancelled
}

func newJobsRun(jobs *jobsFlags) *cobra.Command {
	f := &jobsAllFlags{jobsFlags: jobs}
	var schedule, yes bool
	cmd := &cobra.Command{
		Use:   "run [JOB]",
		Short: "Run a delayed job now, or all that match, or a run of a schedule",
		Long: `Run makes a delayed job due at once. With --schedule JOB is the subject of a schedule, as expediter schedules lists it, and a
further run of it is inserted. Without --yes it shows the job and changes nothing.

` + allHelp,
		Example: `  expediter jobs run --stream MAILS 88121 --yes
  expediter jobs run --stream MAILS --all --subject 'jobs.mail.>' --count 31
  expediter jobs run --stream REPORTS jobs.report.digest --schedule --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return f.use(cmd.Context(), func(client *worker.Client) error {
				switch {
				case f.all:
					return f.act(cmd.Context(), client, runMany)
				case schedule:
					return f.runSchedule(cmd.Context(), client, args[0], yes)
				}
				return f.run(cmd.Context(), client, args[0], yes)
			})
		},
	}
	f.register(cmd)
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
	err = f.audited(ctx, f.js, "run", fmt.Sprintf("job %s:%d", job.Stream, job.Sequence), func(ctx context.Context) (int, error) {
		_, err := client.RunNow(ctx, refOf(job))
		return 1, err
	})
	if err != nil {
		return err
	}
	return f.say("Job %d, which was due %s, is queued.\n", job.Sequence, stamp(job.Due))
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
