package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
)

// jobsAllFlags select jobs for an action.
type jobsAllFlags struct {
	*jobsFlags

	all     bool
	states  []string
	subject string
	yes     bool
}

// command returns a command that takes a JOB or --all.
func (f *jobsAllFlags) command(use string, do func(context.Context, *worker.Client, []string) error) *cobra.Command {
	cmd := f.doing(use, do)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "act on all jobs that the flags select")
	f.severalOf(cmd, &f.states, "state", "jobs in these states, with --all", jobStates...)
	flags.StringVar(&f.subject, "subject", "", "pattern of the jobs' subjects, such as 'jobs.mail.>', with --all")
	f.keyFlag(cmd)
	yesFlag(cmd, &f.yes)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		return f.usage(refuse(f.all == (len(args) == 1) || len(args) > 1, "want a JOB, or --all"),
			refuse(!f.all && (f.states != nil || f.subject != ""), "--state and --subject go with --all"))
	}
	return cmd
}

// act does something to a job, or to those that the flags select.
func (f *jobsAllFlags) act(ctx context.Context, client *worker.Client, a operate.JobAction, args []string) error {
	jobs, more, err := f.find(ctx, client, a, args)
	if err != nil {
		return err
	}
	if first, last := jobs[0], jobs[len(jobs)-1]; !f.yes {
		which := fmt.Sprintf("%s %s, from %d, %s, which is %s", a.Verb, counted(len(jobs), "job"), first.Sequence,
			terminal.Printable(first.Subject), first.State)
		if len(jobs) > 1 {
			which += fmt.Sprintf(", to %d, %s", last.Sequence, terminal.Printable(last.Subject))
		}
		return f.would("%s.%s", which, more)
	}
	done, lapsed, refs := 0, 0, operate.RefsOf(jobs...)
	err = f.audited(ctx, f.js, a.Verb, operate.JobsTarget(f.stream, refs), func(ctx context.Context) (_ int, err error) {
		done, lapsed, err = a.Do(ctx, client, refs)
		return done, err
	})
	switch {
	case err != nil:
		return err
	case done == 0:
		return fmt.Errorf("nothing was done: %s %s", counted(lapsed, "job"), a.Lapsed)
	case lapsed > 0:
		more = fmt.Sprintf(" Of the others, %d %s.%s", lapsed, a.Lapsed, more)
	}
	return f.say("%s %s.%s\n", a.Done, counted(done, "job"), more)
}

// find returns the job that args name, or those that the flags select, if the action applies to them. more is a sentence for a selection
// that ends before its last job.
func (f *jobsAllFlags) find(
	ctx context.Context, client *worker.Client, a operate.JobAction, args []string,
) (jobs []worker.StoredJob, more string, err error) {
	if !f.all {
		job, err := client.Job(ctx, f.ref(args[0]))
		if err == nil && !a.Can(job) {
			err = fmt.Errorf("job %d is %s, and cannot be %s", job.Sequence, job.State, a.Past)
		}
		return []worker.StoredJob{job}, "", err
	}
	jobs, all, err := client.Select(ctx, f.selected(f.states, f.subject).Filter(), a.Can)
	if !all {
		more = " There may be more behind them."
	}
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("%w: no job matches that could be %s.%s", ErrNotFound, a.Past, more)
	}
	return jobs, more, err
}

func newJobsStreams(f *jobsFlags) *cobra.Command {
	return f.listing("streams", func(ctx context.Context, _ []string, format string) error {
		return f.with(ctx, "expediter jobs", func(ctx context.Context, js jetstream.JetStream) error {
			return f.listStreams(ctx, js, format, worker.HasJobs)
		})
	})
}

// streamRow is a stream or a bucket in a list.
type streamRow struct {
	Name      string   `json:"name"`
	Messages  uint64   `json:"messages"`
	Bytes     uint64   `json:"bytes"`
	Consumers int      `json:"consumers"`
	Subjects  []string `json:"subjects"`
}

// listStreams lists the wanted streams of an account, by name.
func (f *natsFlags) listStreams(
	ctx context.Context, js jetstream.JetStream, format string, want func(jetstream.StreamConfig) bool,
) error {
	var all []*jetstream.StreamInfo
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		all = append(all, info)
	}
	if err := streams.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	out := f.rows(format, "NAME", "MESSAGES", "BYTES", "CONSUMERS", "SUBJECTS~")
	slices.SortFunc(all, func(a, b *jetstream.StreamInfo) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	for _, s := range all {
		if cfg, state := s.Config, s.State; want(cfg) {
			row := streamRow{cfg.Name, state.Msgs, state.Bytes, state.Consumers, cfg.Subjects}
			out.Add(row, row.Name, row.Messages, row.Bytes, row.Consumers, strings.Join(row.Subjects, " "))
		}
	}
	return out.Close()
}
