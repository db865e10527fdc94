package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// mostLooked is the largest number of messages of a stream that a list reads, in 100 requests of constant cost.
const mostLooked = 100_000

// jobsFlags are the flags of all commands about jobs.
type jobsFlags struct {
	natsFlags

	bucket string
	js     jetstream.JetStream // set by open
	key    string
	stream string
}

func newJobs(g *globals) *cobra.Command {
	f := &jobsFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "jobs"}
	flags := cmd.PersistentFlags()
	f.register(flags)
	f.registerAccount(flags)
	flags.StringVar(&f.bucket, "bucket", contracts.BucketJobs, "bucket of the workers, with their records of jobs, and the pauses")
	flags.StringVar(&f.stream, "stream", "", "stream of the jobs")
	cmd.AddCommand(newJobsCancel(f), newJobsDrain(f), newJobsList(f), newJobsPause(f), newJobsResume(f), newJobsRun(f),
		newJobsShow(f), newJobsStreams(f), newJobsUnschedule(f), newJobsWorkers(f))
	return cmd
}

// use opens a client of the stream for fn.
func (f *jobsFlags) use(ctx context.Context, fn func(context.Context, *worker.Client) error) error {
	if f.stream == "" {
		return f.usage(errors.New("--stream is missing: name the stream of the jobs"))
	}
	err := f.with(ctx, "expediter jobs", func(ctx context.Context, js jetstream.JetStream) error {
		f.js = js
		client, err := worker.NewClient(js, worker.ClientConfig{
			Bucket: f.bucket, RequestTimeout: f.timeout, SettleTimeout: 2 * f.timeout, Stream: f.stream,
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

// doing returns a command that calls do with a client of the stream.
func (f *jobsFlags) doing(use string, do func(context.Context, *worker.Client, []string) error) *cobra.Command {
	return action(use, func(ctx context.Context, args []string) error {
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error { return do(ctx, client, args) })
	})
}

// acted is audited for one thing.
func (f *jobsFlags) acted(ctx context.Context, action, target string, act func(context.Context) error) error {
	return f.audited(ctx, f.js, action, target, func(ctx context.Context) (int, error) {
		if err := act(ctx); err != nil {
			return 0, err
		}
		return 1, nil
	})
}

// keyFlag adds the flag for the key of a job that is named by its subject.
func (f *jobsFlags) keyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "unique key of the job, unless its subject has it")
}

// ref reads JOB.
func (f *jobsFlags) ref(job string) worker.JobRef {
	if sequence, err := strconv.ParseUint(job, 10, 64); err == nil {
		return worker.JobRef{Key: f.key, Sequence: sequence}
	}
	return worker.JobRef{Key: f.key, Subject: job}
}

// lastTry returns what is known of the last attempt of a job.
func lastTry(j worker.StoredJob) (attempt int, by, failure string) {
	switch {
	case j.Letter != nil:
		return j.Letter.Attempts, j.Letter.Worker, j.Letter.Error
	case j.Progress != nil:
		return j.Progress.Attempt, j.Progress.Worker, ""
	}
	return 0, "", ""
}

// listed returns a job as a line of JSON among many, without what can be large or secret: the headers and the payload.
func listed(j worker.StoredJob) any {
	j.Header, j.Payload = nil, nil
	row := struct {
		worker.StoredJob

		Letter listedLetter `json:"letter,omitzero"`
	}{StoredJob: j}
	if j.Letter != nil {
		row.Letter = listLetter(*j.Letter)
	}
	return row
}

// jobsListFlags are the flags of jobs list.
type jobsListFlags struct {
	*jobsFlags

	from    string
	limit   int
	states  []string
	subject string
}

func newJobsList(jobs *jobsFlags) *cobra.Command {
	f := &jobsListFlags{jobsFlags: jobs}
	cmd := f.listing("list", func(ctx context.Context, _ []string, format string) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error { return f.list(ctx, client, format) })
	})
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "first message to read: a sequence, such as 88121")
	flags.StringVar(&f.key, "key", "", "jobs of this unique key")
	flags.IntVar(&f.limit, "limit", 100, "most jobs to list")
	f.severalOf(cmd, &f.states, "state", "jobs in these states: "+strings.Join(jobStates, ", "), jobStates...)
	flags.StringVar(&f.subject, "subject", "", "pattern of the jobs' subjects, such as 'jobs.mail.>'")
	return cmd
}

var jobStates = []string{
	string(worker.StateQueued), string(worker.StateDelivered), string(worker.StateRunning), string(worker.StateRetrying),
	string(worker.StateScheduled), string(worker.StateDone), string(worker.StateDead), string(worker.StateCancelled),
}

// check returns every mistake that can be found before a connection is opened.
func (f *jobsListFlags) check() error {
	return f.usage(refuse(f.limit < 1, "--limit %d: want 1 or more", f.limit))
}

// cursor reads --from.
func (f *jobsListFlags) cursor() (at worker.Cursor, err error) {
	if f.from == "" {
		return at, nil
	}
	at.Sequence, err = strconv.ParseUint(f.from, 10, 64)
	return at, usage(refuse(at.Sequence == 0 || err != nil, "--from %q: want a sequence, such as 88121", f.from))
}

// selected returns the jobs that flags select.
func (f *jobsFlags) selected(states []string, subject string) *operate.JobSelection {
	return &operate.JobSelection{Account: f.account, Key: f.key, State: strings.Join(states, ","), Stream: f.stream, Subject: subject}
}

func (f *jobsListFlags) list(ctx context.Context, client *worker.Client, format string) (err error) {
	filter := f.selected(f.states, f.subject).Filter()
	if filter.From, err = f.cursor(); err != nil {
		return err
	}
	out := f.rows(format, "SEQ", "STATE", "STORED", "TRY", "NEXT", "WORKER", "CONSUMER", "JOB~", "SUBJECT~", "ERROR~")
	defer func() { err = errors.Join(err, out.Close()) }()
	for looked, left := 0, f.limit; ; {
		filter.Limit = min(left, 1000)
		page, err := client.Jobs(ctx, filter)
		if err != nil {
			return err
		}
		for _, job := range page.Jobs {
			attempt, by, failure := lastTry(job)
			try := ""
			if attempt > 0 {
				try = strconv.Itoa(attempt)
			}
			if err := out.Write(listed(job), strconv.FormatUint(job.Sequence, 10), string(job.State), stamp(job.Since), try, stampOf(job.Due),
				by, job.Consumer, job.ID, job.Subject, firstLine(failure)); err != nil {
				return err
			}
		}
		filter.From, looked, left = page.Next, looked+page.Looked, left-len(page.Jobs)
		switch {
		case page.Next.Sequence == 0:
			return nil
		case left == 0, looked >= mostLooked:
			f.notef("%d of %d messages were looked at: go on with --from %d\n", looked, page.Messages, page.Next.Sequence)
			return nil
		}
	}
}

func newSchedules(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	return f.asking("schedules [STREAM]", f.schedules)
}

// schedules lists the schedules of some streams, or of all streams that may have schedules.
func (f *natsFlags) schedules(ctx context.Context, js jetstream.JetStream, streams []string, format string) error {
	if len(streams) == 0 {
		all := js.ListStreams(ctx)
		for info := range all.Info() {
			if info.Config.AllowMsgSchedules {
				streams = append(streams, info.Config.Name)
			}
		}
		if err := all.Err(); err != nil {
			return fmt.Errorf("list the streams: %w", err)
		}
	}
	out := f.rows(format, "SUBJECT", "WHEN", "TIME ZONE", "NEXT", "SINCE", "STREAM")
	for _, stream := range streams {
		if err := f.schedulesOf(ctx, js, stream, out); err != nil {
			return err
		}
	}
	return out.Close()
}

func (f *natsFlags) schedulesOf(ctx context.Context, js jetstream.JetStream, stream string, out *terminal.Rows) error {
	client, err := worker.NewClient(js, worker.ClientConfig{RequestTimeout: f.timeout, Stream: stream})
	if err != nil {
		return &UsageError{Err: err}
	}
	all, err := client.Schedules(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	for _, s := range all {
		row := struct {
			worker.Scheduled

			Next   time.Time `json:"next,omitzero"`
			Stream string    `json:"stream"`
		}{Scheduled: s, Stream: stream}
		when := s.Cron
		if s.Every > 0 {
			when = "every " + s.Every.String()
		}
		if row.Next, err = s.Next(now); err != nil {
			f.notef("%s: %v\n", terminal.Printable(s.Subject), err) // a schedule of another program
		}
		out.Add(row, row.Subject, when, row.TimeZone, row.Next, row.Since, row.Stream)
	}
	return nil
}
