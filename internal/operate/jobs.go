package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// JobSelection selects jobs of a stream, as a person has written it.
type JobSelection struct {
	Stream, Account string

	State string // states with commas between them

	Subject, Key string
}

// Fields implements [Filter].
func (j *JobSelection) Fields() []Field {
	return []Field{
		{"stream", "", nil, &j.Stream},
		{"account", "", nil, &j.Account},
		{"state", "", nil, &j.State},
		{"subject", "pattern of the jobs' subjects, such as 'jobs.mail.>'", nil, &j.Subject},
		{"key", "jobs of this unique key", nil, &j.Key},
	}
}

// States are the states of jobs, in the order of a job's life.
var States = []string{
	string(worker.StateQueued), string(worker.StateDelivered), string(worker.StateRunning), string(worker.StateRetrying),
	string(worker.StateScheduled), string(worker.StateDone), string(worker.StateDead), string(worker.StateCancelled),
}

// Filter returns the filter for a client. The state dead alone selects dead letters.
func (j *JobSelection) Filter() worker.JobFilter {
	f := worker.JobFilter{Key: j.Key, Subject: j.Subject}
	if j.State == string(worker.StateDead) {
		f.Dead = true
		return f
	}
	for _, state := range strings.FieldsFunc(j.State, func(r rune) bool { return r == ',' }) {
		f.States = append(f.States, worker.State(state))
	}
	return f
}

// Line returns the command line of expediter jobs about the stream, whatever the jobs.
func (j *JobSelection) Line(command string, more ...string) string {
	return Line("jobs "+command, &JobSelection{Stream: j.Stream, Account: j.Account}, more...)
}

// JobAction is an action on jobs, [CancelJobs] or [RunJobs].
type JobAction struct {
	// Verb names the action. Past and Done say that it was done to jobs, and lapsed that it did not apply to them any more.
	Verb, Past, Done, lapsed string

	// Can reports whether the action applies to a job.
	Can func(worker.StoredJob) bool

	act func(*worker.Client, context.Context, worker.JobRef) (worker.StoredJob, error)
}

// The actions on jobs.
var (
	CancelJobs = JobAction{
		Verb: "cancel", Past: "cancelled", Done: "Cancelled", lapsed: "had ended", act: (*worker.Client).Cancel,
		Can: func(j worker.StoredJob) bool { return !j.HasEnded() },
	}
	RunJobs = JobAction{
		Verb: "run", Past: "run now", Done: "Queued", lapsed: "not scheduled any more", act: (*worker.Client).RunNow,
		Can: func(j worker.StoredJob) bool { return j.State == worker.StateScheduled },
	}
)

// Select returns the jobs of a filter to which the action applies, at most 1,000 among 10,000 messages. more is a sentence for the plan
// when there may be others. The error is a [GoneError] if there are none.
func (a JobAction) Select(
	ctx context.Context, client *worker.Client, f worker.JobFilter,
) (jobs []worker.StoredJob, more string, err error) {
	const most, looks, page = 1_000, 10_000, 1_000
	f.Count, f.Limit, f.Look, more = false, page, page, " There may be more behind them."
	for looked := 0; looked < looks && len(jobs) <= most; {
		found, err := client.Jobs(ctx, f)
		if err != nil {
			return nil, more, err
		}
		for _, j := range found.Jobs {
			if a.Can(j) {
				j.Header, j.DeadLetter, j.Payload = nil, nil, nil // of 1,000 jobs they could be a gigabyte
				jobs = append(jobs, j)
			}
		}
		looked += found.Looked
		if f.From = found.Next; f.From.Sequence == 0 {
			if len(jobs) <= most {
				more = ""
			}
			break
		}
	}
	jobs = jobs[:min(len(jobs), most)]
	if len(jobs) == 0 {
		err = GoneError(strings.TrimSuffix("no job matches that could be "+a.Past+"."+more, "."))
	}
	return jobs, more, err
}

// Plan plans the action on jobs of a stream, at least one. more is that of [JobAction.Select]. Of jobs that were named by their numbers,
// the states are not known. The error is a [*worker.SharedError] for a job that is not to be cancelled. A round trip to run jobs.
func (a JobAction) Plan(
	ctx context.Context, js jetstream.JetStream, client *worker.Client, stream string, jobs []worker.StoredJob, more string,
) (Action, error) {
	first, last := jobs[0], jobs[len(jobs)-1]
	plan := fmt.Sprintf("%s job %d", a.Verb, first.Sequence)
	target := fmt.Sprintf("job %s:%d", stream, first.Sequence) // without the subject, which may contain the id of a user
	if len(jobs) > 1 {
		plan = fmt.Sprintf("%s %s, from %d", a.Verb, Counted(len(jobs), "job"), first.Sequence)
		target = fmt.Sprintf("%d jobs of %s from %d to %d", len(jobs), stream, first.Sequence, last.Sequence)
	}
	if first.State != "" {
		plan += fmt.Sprintf(", %s, which is %s", first.Subject, first.State)
	}
	if len(jobs) > 1 {
		plan += strings.TrimSuffix(fmt.Sprintf(", to %d, %s", last.Sequence, last.Subject), ", ")
	}
	refusal := first.CancelRefusal()
	if a.Verb == RunJobs.Verb {
		var reach string
		reach, refusal = Reach(ctx, js, stream)
		more += reach
	}
	do := func(ctx context.Context) (int, string, error) {
		done, note, err := a.do(ctx, client, jobs)
		return done, note + more, err
	}
	return Action{Name: a.Verb, Target: target, Plan: plan + "." + more, Do: do}, refusal
}

// do acts on jobs one by one until the first error. The error is a [GoneError] if the action applies to none any more.
func (a JobAction) do(ctx context.Context, client *worker.Client, jobs []worker.StoredJob) (done int, note string, err error) {
	for _, j := range jobs {
		was, err := a.act(client, ctx, worker.JobRef{ID: j.ID, Sequence: j.Sequence, Subject: j.Subject}) // even after it has moved
		switch {
		case err == nil && a.Can(was):
			done++
		case err != nil && !errors.Is(err, worker.ErrNoJob):
			return done, "", &PartError{fmt.Sprintf("%s %d of %d jobs, then it failed", a.Done, done, len(jobs)), err}
		}
	}
	if done == 0 {
		return 0, "", GoneError(Counted(len(jobs), "job") + " " + a.lapsed)
	}
	note = fmt.Sprintf("%s %s.", a.Done, Counted(done, "job"))
	if lapsed := len(jobs) - done; lapsed > 0 {
		note += fmt.Sprintf(" Of the others, %d %s.", lapsed, a.lapsed)
	}
	return done, note, nil
}

// Reach says that jobs that run do so for all consumers of their streams, " " before each sentence, "" for work queues. A round trip
// for each of the first 20 streams.
func Reach(ctx context.Context, js jetstream.JetStream, streams ...string) (text string, err error) {
	for _, name := range streams[:min(len(streams), maxProblems)] {
		stream, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName): // then no job runs
		case err != nil:
			return "", fmt.Errorf("look up stream %s: %w", name, err)
		case stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy:
			text += fmt.Sprintf(" %s is not a work queue: every consumer of it gets the jobs.", name)
		}
	}
	return text, nil
}

// HasJobs reports whether a stream with a configuration may have jobs: it is a work queue, or takes delayed jobs, and is not a
// bucket.
func HasJobs(cfg jetstream.StreamConfig) bool {
	bucket := strings.HasPrefix(cfg.Name, "KV_") || strings.HasPrefix(cfg.Name, "OBJ_")
	return !bucket && (cfg.Retention == jetstream.WorkQueuePolicy || cfg.AllowMsgSchedules)
}

// LastTry returns what is known of the last attempt of a job.
func LastTry(j worker.StoredJob) (attempt int, by, failure string) {
	if j.DeadLetter != nil {
		return j.DeadLetter.Attempts, j.DeadLetter.Worker, j.DeadLetter.Error
	}
	if j.Progress != nil {
		by = j.Progress.Worker
	}
	return j.Attempt, by, j.Error
}

// Unseen says that n delivered jobs may be retrying although nothing is recorded of it, "" for none.
func Unseen(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d delivered jobs may be retrying: the errors of the newest 10,000 failed jobs of a consumer are kept.", n)
}

// Streams lists the streams with jobs of an account, by name. One round trip for each 256 streams.
func Streams(ctx context.Context, js jetstream.JetStream) (all []*jetstream.StreamInfo, err error) {
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if HasJobs(info.Config) {
			all = append(all, info)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	slices.SortFunc(all, func(a, b *jetstream.StreamInfo) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

// Schedule is a schedule in a list.
type Schedule struct {
	worker.Scheduled

	// Next is the time of the next run. It is not known for a schedule of another program, which has a Problem.
	Next    time.Time `json:"next,omitzero"`
	Problem string    `json:"problem,omitempty"`

	Stream string `json:"stream"`
}

// When returns the times of the runs: an interval, or an expression of cron.
func (s Schedule) When() string {
	if s.Every > 0 {
		return "every " + s.Every.String()
	}
	return s.Cron
}

// Schedules lists the schedules of a stream. A round trip, and one for each schedule.
func Schedules(ctx context.Context, client *worker.Client, stream string) (all []Schedule, err error) {
	found, err := client.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		row := Schedule{Scheduled: s, Stream: stream}
		if row.Next, err = s.Next(time.Now()); err != nil {
			row.Problem = "another program's: " + err.Error()
		}
		all = append(all, row)
	}
	return all, nil
}
