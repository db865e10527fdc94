package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/service/console"
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

// jobsAction is an operation on jobs.
type jobsAction struct {
	console.JobAction

	// cannot says why it cannot be done to one job, which how describes, and did that it was done.
	cannot, did string
	how         func(worker.StoredJob) string
}

var (
	cancelJobs = jobsAction{
		JobAction: console.CancelJobs, cannot: "it has ended", did: "Cancelled job %d, which was %s.\n",
		how: func(j worker.StoredJob) string { return string(j.State) },
	}
	runJobs = jobsAction{
		JobAction: console.RunJobs, cannot: "only a delayed job can be run now", did: "Job %d, which was %s, is queued.\n",
		how: func(j worker.StoredJob) string { return "due " + stamp(j.Due) },
	}
)

// act does something to a job, or to those that the flags select.
func (f *jobsAllFlags) act(ctx context.Context, client *worker.Client, a jobsAction, args []string) error {
	if f.all {
		return f.actOnAll(ctx, client, a)
	}
	job, err := client.Job(ctx, f.ref(args[0]))
	switch {
	case err != nil:
		return err
	case !a.Can(job):
		return fmt.Errorf("job %d is %s: %s", job.Sequence, job.State, a.cannot)
	case !f.yes:
		return f.would("%s job %d, %s, which is %s.", a.Verb, job.Sequence, terminal.Printable(job.Subject), a.how(job))
	}
	// A subject may hold data of a user.
	was := job
	err = f.audited(ctx, f.js, a.Verb, fmt.Sprintf("job %s:%d", job.Stream, job.Sequence), func(ctx context.Context) (int, error) {
		if was, err = a.Do(client, ctx, console.RefOf(job)); err != nil || !a.Can(was) {
			return 0, err
		}
		return 1, nil
	})
	switch {
	case err != nil:
		return err
	case !a.Can(was):
		return fmt.Errorf("job %d is %s by now: %s", was.Sequence, was.State, a.cannot)
	}
	return f.say(a.did, job.Sequence, a.how(was))
}

// actOnAll runs the operation on the jobs that the flags select.
func (f *jobsAllFlags) actOnAll(ctx context.Context, client *worker.Client, a jobsAction) error {
	filter := worker.JobFilter{Key: f.key, States: statesOf(f.states), Subject: f.subject}
	jobs, all, err := client.Select(ctx, worker.Selection{Can: a.Can, Filter: filter})
	more := ""
	if !all {
		more = " There may be more behind them."
	}
	switch {
	case err != nil:
		return err
	case len(jobs) == 0:
		return fmt.Errorf("%w: no job matches that could be %s.%s", ErrNotFound, a.Past, more)
	case !f.yes:
		first, last := jobs[0], jobs[len(jobs)-1]
		return f.would("%s %s, from %d, %s, to %d, %s.%s", a.Verb, counted(len(jobs), "job"),
			first.Sequence, terminal.Printable(first.Subject), last.Sequence, terminal.Printable(last.Subject), more)
	}
	done, lapsed := 0, 0
	target := fmt.Sprintf("%s of %s by a filter", counted(len(jobs), "job"), f.stream)
	err = f.audited(ctx, f.js, a.Verb, target, func(ctx context.Context) (_ int, err error) {
		if done, lapsed, err = a.DoAll(ctx, client, console.RefsOf(jobs...)); err != nil {
			err = fmt.Errorf("%s %d of %s, then it failed: %w", a.Done, done, counted(len(jobs), "job"), err)
		}
		return done, err
	})
	if err != nil {
		return err
	}
	if lapsed > 0 {
		more = fmt.Sprintf(" Of the others, %d %s.%s", lapsed, a.Lapsed, more)
	}
	return f.say("%s %s.%s\n", a.Done, counted(done, "job"), more)
}

func newJobsStreams(f *jobsFlags) *cobra.Command {
	return f.listing("streams", func(ctx context.Context, _ []string, format string) error {
		return f.with(ctx, "expediter jobs", func(js jetstream.JetStream) error { return f.listStreams(ctx, js, format, worker.HasJobs) })
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
