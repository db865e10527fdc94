package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/worker"
)

// JobSelection selects jobs of a stream, as a person has written it.
type JobSelection struct {
	Stream, Account string

	// State are states with commas between them.
	State string

	Subject, Key string
}

// Fields implements [Filter].
func (j *JobSelection) Fields() []Field {
	return []Field{
		{"stream", "", nil, &j.Stream},
		{"account", "", nil, &j.Account},
		{"state", "", nil, &j.State},
		{"subject", "", nil, &j.Subject},
		{"key", "", nil, &j.Key},
	}
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
	// Verb names the action, and Title begins a sentence. Past and Done say that it was done to jobs, and Lapsed that it did not apply to
	// them any more.
	Verb, Title, Past, Done, Lapsed string

	// Can reports whether the action applies to a job.
	Can func(worker.StoredJob) bool

	act func(*worker.Client, context.Context, worker.JobRef) (worker.StoredJob, error)
}

// The actions on jobs.
var (
	CancelJobs = JobAction{
		Verb: "cancel", Title: "Cancel", Past: "cancelled", Done: "Cancelled", Lapsed: "had ended", act: (*worker.Client).Cancel,
		Can: func(j worker.StoredJob) bool { return !HasEnded(j) },
	}
	RunJobs = JobAction{
		Verb: "run", Title: "Run now", Past: "run now", Done: "Queued", Lapsed: "were not delayed any more", act: (*worker.Client).RunNow,
		Can: func(j worker.StoredJob) bool { return j.State == worker.StateScheduled },
	}
)

// Do acts on jobs one by one, and returns the number of those that it changed, and of those to which it did not apply any more. It ends
// with the first error.
func (a JobAction) Do(ctx context.Context, client *worker.Client, refs []worker.JobRef) (done, lapsed int, err error) {
	for _, ref := range refs {
		was, err := a.act(client, ctx, ref)
		switch {
		case err == nil && a.Can(was):
			done++
		case err == nil, errors.Is(err, worker.ErrNoJob):
			lapsed++
		default:
			return done, lapsed, fmt.Errorf("%s %d of %d jobs, then it failed: %w", a.Done, done, len(refs), err)
		}
	}
	return done, lapsed, nil
}

// HasEnded reports whether a job will never run again.
func HasEnded(j worker.StoredJob) bool {
	return slices.Contains([]worker.State{worker.StateDone, worker.StateDead, worker.StateCancelled}, j.State)
}

// RefsOf returns the references of jobs that were found, even after they have moved.
func RefsOf(jobs ...worker.StoredJob) (refs []worker.JobRef) {
	for _, j := range jobs {
		refs = append(refs, worker.JobRef{ID: j.ID, Sequence: j.Sequence, Subject: j.Subject})
	}
	return refs
}

// JobsTarget describes jobs of a stream in a record of the audit, without their subjects: these may contain the id of a user.
func JobsTarget(stream string, refs []worker.JobRef) string {
	first, last := refs[0].Sequence, refs[len(refs)-1].Sequence
	if len(refs) == 1 {
		return fmt.Sprintf("job %s:%d", stream, first)
	}
	return fmt.Sprintf("%d jobs of %s from %d to %d", len(refs), stream, first, last)
}
