package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// mostLooked is the largest number of messages of a stream that a list reads, in 100 requests of constant cost.
const mostLooked = 100_000

type jobsFlags struct {
	natsFlags
	operate.JobSelection

	bucket string
	js     jetstream.JetStream // set by use
}

func newJobs(g *globals) *cobra.Command {
	f := &jobsFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "jobs"}
	flags := cmd.PersistentFlags()
	f.register(flags)
	f.registerAccount(flags)
	flags.StringVar(&f.bucket, "bucket", contracts.BucketJobs, "bucket of the workers, with their records of jobs, and the pauses")
	flags.StringVar(&f.Stream, "stream", "", "stream of the jobs")
	cmd.AddCommand(newJobsAct(f, "cancel [JOB]", operate.CancelJobs), newJobsDrain(f), newJobsList(f), newJobsPause(f), newJobsResume(f),
		newJobsAct(f, "run [JOB]", operate.RunJobs), newJobsShow(f), newJobsStreams(f), newJobsUnschedule(f), newJobsWorkers(f))
	return cmd
}

func (f *jobsFlags) use(ctx context.Context, fn func(context.Context, *worker.Client) error) error {
	if f.Stream == "" {
		return f.usage(errors.New("--stream is missing: name the stream of the jobs"))
	}
	err := f.connected(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		client, err := worker.NewClient(js, worker.ClientConfig{
			Bucket: f.bucket, RequestTimeout: f.timeout, SettleTimeout: 2 * f.timeout, Stream: f.Stream,
		})
		if err != nil {
			return &UsageError{Err: err}
		}
		return fn(ctx, client)
	})
	if errors.Is(err, worker.ErrNoJob) || errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

func (f *jobsFlags) connected(ctx context.Context, fn func(context.Context, jetstream.JetStream) error) error {
	f.named = f.Stream
	return f.with(ctx, "expediter jobs", func(ctx context.Context, js jetstream.JetStream) error {
		f.js = js
		return fn(ctx, js)
	})
}

func (f *jobsFlags) doing(use string, do func(context.Context, *worker.Client, []string) error) *cobra.Command {
	return action(use, func(ctx context.Context, args []string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error { return do(ctx, client, args) })
	})
}

func (f *jobsFlags) selecting(cmd *cobra.Command) {
	f.filterFlags(cmd, &f.JobSelection)
	states := &choices{globals: f.globals, join: true, name: "state", of: operate.States, one: &f.State}
	cmd.Flags().Var(states, "state", "jobs in these states: "+strings.Join(operate.States, ", "))
	completeWith(cmd, "state", operate.States...)
}

func (f *jobsFlags) ref(job string) worker.JobRef {
	if sequence, err := strconv.ParseUint(job, 10, 64); err == nil {
		return worker.JobRef{Sequence: sequence}
	}
	return worker.JobByKey(job, f.Key)
}

// listed returns a job as a line of JSON among many, without what can be large or secret: the headers and the payload.
func listed(j worker.StoredJob) any {
	j.Header, j.Payload = nil, nil
	row := struct {
		worker.StoredJob

		DeadLetter listedDeadLetter `json:"dead_letter,omitzero"`
	}{StoredJob: j}
	if j.DeadLetter != nil {
		row.DeadLetter = listDeadLetter(*j.DeadLetter)
	}
	return row
}

func newJobsList(f *jobsFlags) *cobra.Command {
	var from uint64
	var limit int
	cmd := f.listing("list", func(ctx context.Context, _ []string, format string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error {
			return f.list(ctx, client, format, from, limit)
		})
	})
	flags := cmd.Flags()
	flags.Uint64Var(&from, "from", 0, "first message to read: a sequence, such as 88121")
	f.want(flags, "from", "a sequence, such as 88121", func() bool { return from > 0 })
	flags.IntVar(&limit, "limit", 100, "most jobs to list")
	f.want(flags, "limit", "1 or more", func() bool { return limit >= 1 })
	f.selecting(cmd)
	return cmd
}

func (f *jobsFlags) list(ctx context.Context, client *worker.Client, format string, from uint64, limit int) (err error) {
	filter := f.Filter()
	filter.From.Sequence = from
	out := f.rows(format, "No jobs: the stream has none that the flags select.",
		"SEQ", "STATE", "STORED", "TRY", "NEXT?", "WORKER?-", "CONSUMER", "JOB~-", "SUBJECT~", "ERROR?")
	unseen := 0
	defer func() {
		if unseen > 0 {
			out.Notef("%s", operate.Unseen(unseen))
		}
		err = out.Close(err)
	}()
	for looked, left := 0, limit; ; {
		filter.Limit = min(left, 1000)
		page, err := client.Jobs(ctx, filter)
		if err != nil {
			return err
		}
		for _, job := range page.Jobs {
			writeJob(out, job, filter.States)
		}
		filter.From, looked, left, unseen = page.Next, looked+page.Looked, left-len(page.Jobs), unseen+page.Displaced
		switch {
		case page.Next.Sequence == 0:
			return nil
		case left == 0, looked >= mostLooked:
			out.Notef("%d of %d messages were looked at: go on with --from %d", looked, page.Messages, page.Next.Sequence)
			return nil
		}
	}
}

// writeJob writes a row for each consumer that has a job in one of the states, of which none means any.
func writeJob(out *terminal.Rows, job worker.StoredJob, states []worker.State) {
	for _, as := range job.Each() {
		if len(states) > 0 && !slices.Contains(states, as.State) {
			continue
		}
		attempt, by, failure := operate.LastTry(*as)
		try := any(attempt)
		if attempt == 0 {
			try = ""
		}
		out.Add(listed(*as), job.Sequence, as.State, job.Since, try, nextOf(job, as), by, as.Consumer, job.ID, job.Subject, firstLine(failure))
	}
}

// nextOf returns when a job is due, as the console shows it, "" for one that runs or has ended.
func nextOf(job worker.StoredJob, as *worker.StoredJob) string {
	if at := cmp.Or(job.Due, as.Next); !at.IsZero() || as.State != worker.StateRetrying {
		return terminal.Time(at)
	}
	return "now"
}

func newSchedules(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	return f.asking("schedules [STREAM]", f.schedules)
}

// schedules lists the schedules of some streams, or of all streams that may have schedules.
func (f *natsFlags) schedules(ctx context.Context, js jetstream.JetStream, streams []string, format string) error {
	if len(streams) == 0 {
		all, err := operate.Streams(ctx, js)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Config.AllowMsgSchedules {
				streams = append(streams, s.Config.Name)
			}
		}
	}
	out := f.rows(format, "No schedules: no program has scheduled periodic jobs here.",
		"SUBJECT~", "WHEN", "TIME ZONE", "NEXT", "SINCE-", "STREAM")
	for _, stream := range streams {
		f.named = stream
		if err := f.schedulesOf(ctx, js, stream, out); err != nil {
			return err
		}
	}
	return out.Close(nil)
}

func (f *natsFlags) schedulesOf(ctx context.Context, js jetstream.JetStream, stream string, out *terminal.Rows) error {
	client, err := worker.NewClient(js, worker.ClientConfig{RequestTimeout: f.timeout, Stream: stream})
	if err != nil {
		return &UsageError{Err: err}
	}
	all, err := operate.Schedules(ctx, client, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Problem != "" {
			out.Notef("%s: %s", terminal.Printable(s.Subject), s.Problem)
		}
		out.Add(s, s.Subject, s.When(), s.TimeZone, s.Next, s.Since, s.Stream)
	}
	return nil
}

func newJobsShow(f *jobsFlags) *cobra.Command {
	cmd := f.listing("show JOB", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error {
			job, err := client.Job(ctx, f.ref(args[0]))
			if err != nil {
				return err
			}
			return f.show(job, format)
		})
	})
	cmd.Flags().StringVar(&f.Key, "key", "", "unique key of the job, unless its subject has it")
	return cmd
}

func (f *jobsFlags) show(j worker.StoredJob, format string) error {
	if asJSON(format) {
		return f.writeLine(j)
	}
	var text details
	line := text.line
	line("job", j.ID)
	line("subject", j.Subject)
	line("stored", fmt.Sprintf("%s, sequence %d of %s", terminal.Time(j.Since), j.Sequence, j.Stream))
	for _, as := range j.Each() {
		attempt, by, failure := operate.LastTry(*as)
		line("consumer", cmp.Or(as.Consumer, "none: no worker takes it"))
		line("state", string(as.State))
		line("next", nextOf(j, as))
		if attempt > 0 {
			line("attempt", strings.TrimSuffix(fmt.Sprintf("%d, worker %s", attempt, by), ", worker "))
		}
		if as.Progress != nil {
			line("progress", fmt.Sprintf("%s %s", terminal.Time(as.Progress.At), as.Progress.Value))
		}
		text.section("error", failure)
	}
	text.section("headers", headerLines(j.Header))
	text.section(fmt.Sprintf("payload (%d bytes)", len(j.Payload)), readable(j.Payload))
	return f.say("%s", text.String())
}

// newJobsAct returns a command that acts on a delayed or waiting job, or on all that match.
func newJobsAct(jobs *jobsFlags, use string, action operate.JobAction) *cobra.Command {
	f := &jobsAllFlags{jobsFlags: jobs}
	return f.command(use, func(ctx context.Context, client *worker.Client, args []string) error {
		return f.act(ctx, client, action, args)
	})
}

func newJobsUnschedule(f *jobsFlags) *cobra.Command {
	var yes bool
	cmd := f.doing("unschedule SUBJECT", func(ctx context.Context, client *worker.Client, args []string) error {
		a, err := operate.Unschedule(ctx, client, f.Stream, args[0])
		if err != nil {
			return gone(err)
		}
		return f.perform(ctx, f.js, a, yes)
	})
	yesFlag(cmd, &yes)
	return cmd
}

type jobsAllFlags struct {
	*jobsFlags

	all bool
	yes bool
}

// command returns a command that takes a JOB or --all.
func (f *jobsAllFlags) command(use string, do func(context.Context, *worker.Client, []string) error) *cobra.Command {
	cmd := f.doing(use, do)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "act on all jobs that the flags select")
	f.selecting(cmd)
	yesFlag(cmd, &f.yes)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		return f.usage(checkArgs(cmd, args), refuse(f.all == (len(args) > 0), "want a JOB, %s, or --all", arguments["JOB"]),
			refuse(!f.all && f.State+f.Subject != "", "--state and --subject go with --all"))
	}
	return cmd
}

// act does something to a job, or to those that the flags select.
func (f *jobsAllFlags) act(ctx context.Context, client *worker.Client, a operate.JobAction, args []string) error {
	jobs, more, err := f.find(ctx, client, a, args)
	if err != nil {
		return gone(err)
	}
	plan, err := a.Plan(ctx, f.js, client, f.Stream, jobs, more)
	if err != nil {
		return err
	}
	return f.perform(ctx, f.js, plan, f.yes || !operate.Asks(a.Verb, len(jobs)))
}

// find returns the job that args name, or those that the flags select, if the action applies to them.
func (f *jobsAllFlags) find(
	ctx context.Context, client *worker.Client, a operate.JobAction, args []string,
) (jobs []worker.StoredJob, more string, err error) {
	if f.all {
		return a.Select(ctx, client, f.Filter())
	}
	job, err := client.Job(ctx, f.ref(args[0]))
	if err == nil && !a.Can(job) {
		err = fmt.Errorf("job %d is %s, and cannot be %s", job.Sequence, job.State, a.Past)
	}
	return []worker.StoredJob{job}, "", err
}

func newJobsStreams(f *jobsFlags) *cobra.Command {
	return f.listing("streams", func(ctx context.Context, _ []string, format string) error {
		return f.connected(ctx, func(ctx context.Context, js jetstream.JetStream) error { return f.listStreams(ctx, js, format) })
	})
}

type streamRow struct {
	Name      string   `json:"name"`
	Messages  uint64   `json:"messages"`
	Bytes     uint64   `json:"bytes"`
	Consumers int      `json:"consumers"`
	Subjects  []string `json:"subjects"`
}

func (f *natsFlags) listStreams(ctx context.Context, js jetstream.JetStream, format string) error {
	all, err := operate.Streams(ctx, js)
	if err != nil {
		return err
	}
	out := f.rows(format, "No streams of jobs: expediter apply makes those of the services.",
		"NAME", "MESSAGES", "BYTES", "CONSUMERS", "SUBJECTS~")
	for _, s := range all {
		row := streamRow{s.Config.Name, s.State.Msgs, s.State.Bytes, s.State.Consumers, s.Config.Subjects}
		out.Add(row, row.Name, row.Messages, row.Bytes, row.Consumers, strings.Join(row.Subjects, " "))
	}
	return out.Close(nil)
}

func newJobsPause(f *jobsFlags) *cobra.Command {
	var limit time.Duration
	cmd := f.listing("pause [PATTERN]", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error {
			if len(args) == 0 {
				return f.pauses(ctx, client, format)
			}
			return f.pause(ctx, client, args[0], limit)
		})
	})
	cmd.Flags().DurationVar(&limit, "for", 0, "end by itself after this time, 0 for never")
	f.want(cmd.Flags(), "for", "0 or more", func() bool { return limit >= 0 })
	return cmd
}

func (f *jobsFlags) pause(ctx context.Context, client *worker.Client, pattern string, limit time.Duration) error {
	user, err := f.user(ctx, f.js)
	if err != nil {
		return err
	}
	p := worker.Pause{By: user, Pattern: pattern}
	if limit > 0 {
		p.Until = time.Now().Add(limit)
	}
	return f.perform(ctx, f.js, operate.PauseHandlers(client, f.Stream, p), true)
}

func (f *jobsFlags) pauses(ctx context.Context, client *worker.Client, format string) error {
	all, err := client.Pauses(ctx)
	if err != nil {
		return err
	}
	out := f.rows(format, "No pauses: workers start the jobs of all patterns.", "PATTERN", "SINCE", "UNTIL", "BY")
	for _, p := range all {
		out.Add(p, p.Pattern, p.Since, p.Until, p.By)
	}
	return out.Close(nil)
}

func newJobsResume(f *jobsFlags) *cobra.Command {
	return f.doing("resume PATTERN", func(ctx context.Context, client *worker.Client, args []string) error {
		return f.perform(ctx, f.js, operate.ResumeHandlers(client, f.Stream, args[0]), true)
	})
}

type workersFlags struct {
	*jobsFlags

	format string
	recent bool
	stacks bool
}

func newJobsWorkers(jobs *jobsFlags) *cobra.Command {
	f := &workersFlags{jobsFlags: jobs}
	cmd := action("workers [WORKER]", func(ctx context.Context, args []string) error {
		if (f.recent || f.stacks) && len(args) == 0 {
			return f.usage(errors.New("--recent and --stacks need a WORKER"))
		}
		return f.connected(ctx, func(ctx context.Context, js jetstream.JetStream) error {
			return f.run(ctx, js, strings.Join(args, ""))
		})
	})
	flags := cmd.Flags()
	flags.BoolVar(&f.recent, "recent", false, "show the last attempts of the worker")
	flags.BoolVar(&f.stacks, "stacks", false, "show the stacks of the attempts that run in the worker")
	cmd.MarkFlagsMutuallyExclusive("recent", "stacks")
	f.outputFlag(cmd, &f.format, listFormats...)
	return cmd
}

func (f *workersFlags) run(ctx context.Context, js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	all, err := f.find(ctx, js, name)
	switch {
	case err != nil:
		return err
	case name == "":
		return f.list(all)
	case f.recent:
		recent, err := inspect.RecentOf(ctx, js, all[0].Instance)
		return errors.Join(err, f.showRecent(recent))
	case f.stacks:
		stacks, err := inspect.StacksOf(ctx, js, all[0].Instance)
		return errors.Join(err, f.showStacks(stacks))
	}
	return f.show(all[0])
}

// find returns the workers that answer, or the only worker with a name.
func (f *workersFlags) find(ctx context.Context, js jetstream.JetStream, name string) ([]inspect.Info, error) {
	all, err := inspect.Workers(ctx, js)
	if err != nil {
		f.notef("%v\n", err) // the other workers have answered
	}
	var names []string
	all = slices.DeleteFunc(all, func(w inspect.Info) bool {
		names = append(names, w.ID)
		return f.Stream != "" && w.Stream != f.Stream || name != "" && w.ID != name && w.Instance != name
	})
	slices.SortFunc(all, func(a, b inspect.Info) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.ID, b.ID), a.Started.Compare(b.Started))
	})
	switch {
	case name == "" || len(all) == 1:
		return all, nil
	case len(all) == 0:
		return nil, fmt.Errorf("%w: no worker %q answers%s", ErrNotFound, name, didYouMean(name, names...))
	}
	instances := make([]string, 0, len(all))
	for _, w := range all {
		instances = append(instances, w.Instance)
	}
	return nil, usage(fmt.Errorf("%d workers are %q: name one by its instance, %s", len(all), name, strings.Join(instances, " or ")))
}

func newJobsDrain(jobs *jobsFlags) *cobra.Command {
	f, resume := &workersFlags{jobsFlags: jobs}, false
	cmd := action("drain WORKER", func(ctx context.Context, args []string) error {
		return f.connected(ctx, func(ctx context.Context, _ jetstream.JetStream) error { return f.drain(ctx, args[0], resume) })
	})
	cmd.Flags().BoolVar(&resume, "resume", false, "have it take jobs again")
	return cmd
}

func (f *workersFlags) drain(ctx context.Context, name string, resume bool) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	all, err := f.find(ctx, f.js, name)
	if err != nil {
		return err
	}
	return f.perform(ctx, f.js, operate.DrainWorker(f.js, &all[0], resume), true)
}

func (f *workersFlags) list(all []inspect.Info) error {
	out := f.rows(f.format, "No workers: none answers.", "WORKER", "VERSION?-", "STREAM", "CONSUMER", "RUNNING", "DELIVERED", "STATE",
		"LAST", "P95", "QUEUED P95-", "STARTED-", "INSTANCE?")
	named := map[string]int{}
	for _, w := range all {
		named[w.ID]++
	}
	for _, w := range all {
		last, ran, waited, instance := "", "", "", ""
		if l := w.Last; l.Completed+l.Others > 0 {
			last, ran = fmt.Sprintf("%d/%d", l.Completed, l.Others), l.Ran95.Round(time.Millisecond).String()
		}
		if wait, of := inspect.Wait95(w); of > 0 {
			waited = wait.Round(time.Millisecond).String()
		}
		if named[w.ID] > 1 { // the name alone does not tell it from the others
			instance = w.Instance
		}
		out.Add(w, w.ID, w.Version, w.Stream, w.Consumer, fmt.Sprintf("%d/%d", w.Running, w.Slots), w.Waiting, w.State(), last, ran, waited,
			w.Started, instance)
	}
	return out.Close(nil)
}

func (f *workersFlags) show(w inspect.Info) error {
	if asJSON(f.format) {
		return f.writeLine(w)
	}
	if err := f.list([]inspect.Info{w}); err != nil {
		return err
	}
	if w.Problem != "" {
		f.notef("It takes no jobs: %s\n", w.Problem)
	}
	out := f.rows(f.format, "No handlers.", "HANDLER", "CONSUMER", "ATTEMPTS", "TIMEOUT", "ORDERED", "LIMITS?")
	for _, h := range w.Handlers {
		out.Add(h, h.Pattern, h.Consumer, h.MaxAttempts, h.Timeout, h.Ordered, strings.Join(h.Limits, " "))
	}
	omitted(out, w.HandlersOmitted)
	return out.Close(nil)
}

func (f *workersFlags) showRecent(r inspect.Recent) error {
	out := f.rows(f.format, "No attempts: the worker has ended none yet.",
		"STARTED", "RAN", "OUTCOME", "TRY", "SEQ", "JOB~-", "SUBJECT~", "ERROR")
	for _, a := range r.Attempts {
		out.Add(a, a.Started, a.Ran.Round(time.Millisecond).String(), a.Outcome, a.Attempt,
			a.Sequence, a.Job, a.Subject, firstLine(a.Error))
	}
	omitted(out, r.Omitted)
	return out.Close(nil)
}

func (f *workersFlags) showStacks(s inspect.Stacks) error {
	if asJSON(f.format) {
		return f.writeLine(s)
	}
	var text strings.Builder
	for _, a := range s.Attempts {
		stuck := ""
		if a.Stuck {
			stuck = ", and ignores its ended context"
		}
		fmt.Fprintf(&text, "%s (%d, job %s), attempt %d, since %s%s\n", terminal.Printable(a.Subject), a.Sequence,
			terminal.Printable(a.Job), a.Attempt, terminal.Time(a.Started), stuck)
		for row := range strings.Lines(a.Stacks) {
			text.WriteString("  " + terminal.Printable(strings.ReplaceAll(strings.TrimRight(row, "\n"), "\t", "    ")) + "\n")
		}
	}
	err := f.say("%s", text.String())
	f.more(s.Omitted)
	return err
}

// omitted notes the number of entries that did not fit into an answer.
func omitted(out *terminal.Rows, n int) {
	if n > 0 {
		out.Notef("%d more did not fit into the answer.", n)
	}
}
