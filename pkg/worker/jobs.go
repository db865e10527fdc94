package worker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	pageJobs = 100   // of a page, by default
	maxPage  = 1_000 // the largest number of messages that a page reads
)

// ErrCursor is returned when the stream was deleted and recreated after the cursor was returned.
var ErrCursor = errors.New("worker: the stream was recreated since the cursor was returned: begin with the first page")

// Cursor is the position at which a page begins. The zero Cursor is the oldest message.
type Cursor struct {
	// Created is the time at which the stream was created, as known when the cursor was returned. Zero is not checked.
	Created time.Time

	// Sequence is the first message to read.
	Sequence uint64
}

// JobFilter selects jobs. Its fields are joined by "and"; the zero value selects all of the stream.
type JobFilter struct {
	// Count makes the page count the messages of the stream, see JobPage.Counts. Defaults to false.
	Count bool

	// Dead lists the dead letters of the stream's jobs, in ClientConfig.DeadStream, instead of the stream. Defaults to false.
	Dead bool

	// From is the position at which to begin: the Next of the previous page. Defaults to the oldest.
	From Cursor

	// Key selects the jobs of a Unique.Key. Defaults to all.
	Key string

	// Limit is the largest number of jobs of a page, up to 1,000. Defaults to 100.
	Limit int

	// Look is the largest number of messages that a page of selected jobs reads, up to 1,000. Defaults to 1,000.
	Look int

	// States selects jobs by their states. Defaults to all.
	States []State

	// Subject is a pattern that the subject, including the key, must match, such as "jobs.mail.>". Defaults to all.
	Subject string
}

// validate returns an error that names all mistakes. Defaults must be set before.
func (f JobFilter) validate() error {
	badSubject := subject.CheckPattern(cmp.Or(f.Subject, ">"))
	_, badKey := subject.EncodeToken(cmp.Or(f.Key, "-"))
	return errors.Join(
		validate.If(f.Limit < 1 || f.Limit > maxPage, "worker: JobFilter.Limit is %d: use 1 to %d", f.Limit, maxPage),
		validate.If(f.Look < 1 || f.Look > maxPage, "worker: JobFilter.Look is %d: use 1 to %d", f.Look, maxPage),
		validate.If(badSubject != nil, "worker: JobFilter.Subject is %s: not a subject filter: %w", redact.Quote(f.Subject), badSubject),
		validate.If(badKey != nil, "worker: JobFilter.Key: %w", badKey))
}

// wants reports whether the filter selects jobs in a state.
func (f JobFilter) wants(s State) bool { return len(f.States) == 0 || slices.Contains(f.States, s) }

// selectsState reports whether the filter selects the job by its state at one of its consumers.
func (f JobFilter) selectsState(j StoredJob) bool {
	return slices.ContainsFunc(j.Each(), func(as *StoredJob) bool { return f.wants(as.State) })
}

// mayWant reports whether the filter may select a job whose state is not completed yet.
func (f JobFilter) mayWant(j StoredJob) bool {
	return slices.ContainsFunc(j.Each(), func(as *StoredJob) bool {
		return f.wants(as.State) || as.State == StateDelivered && (f.wants(StateRunning) || f.wants(StateRetrying)) ||
			as.Shared && f.wants(StateDead)
	})
}

// selects reports whether the filter leaves jobs out.
func (f JobFilter) selects() bool {
	return f.Dead || f.Key != "" || f.Subject != "" || len(f.States) > 0
}

// hasName reports whether the filter selects a job by its subject and key.
func (f JobFilter) hasName(j StoredJob) bool {
	last, _ := subject.EncodeToken(f.Key) // it has been checked
	return (f.Key == "" || strings.HasSuffix(j.Subject, "."+last)) && (f.Subject == "" || subject.Matches(f.Subject, j.Subject))
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	// AsOf is the time at which the server was asked, by the server's clock.
	AsOf time.Time

	// Counts counts the messages of the stream, if JobFilter.Count is set.
	Counts Counts

	// Jobs are in the order of the stream.
	Jobs []StoredJob

	// Looked is the number of messages that were read.
	Looked int

	// Displaced is the number of jobs with StoredJob.Displaced that were read, also of those that JobFilter.States leaves out.
	Displaced int

	// Messages is the number of messages of the stream, including schedules and records.
	Messages uint64

	// Next is the position at which the next page begins, the zero Cursor at the end. A page without jobs can be followed by another page.
	Next Cursor
}

// StoredJob is a job as the server has it.
type StoredJob struct {
	// Due is the time at which a scheduled job becomes due.
	Due time.Time `json:"due,omitzero"`

	// ID is the ID of the job.
	ID string `json:"id"`

	// Sequence is the position in the stream of the message: the job, its schedule, its record or its dead letter.
	Sequence uint64 `json:"sequence"`

	// Since is the time at which the server stored the message.
	Since time.Time `json:"since"`

	// State is the state of the job.
	State State `json:"state"`

	// Stream is the stream of the job.
	Stream string `json:"stream"`

	// Subject is the subject of the job.
	Subject string `json:"subject"`

	// Attempt is the number of the last attempt that a worker recorded: of the last that failed, or that runs. 0 is unknown.
	Attempt int `json:"attempt,omitempty"`

	// Consumer is the consumer that takes the job, "" when none does: no worker would ever work the job.
	Consumer string `json:"consumer,omitempty"`

	// Consumers is the job as each of its consumers has it, by name, if several take it: with its own State and Progress, without Header and
	// Payload. The job itself is then as the first consumer has it that has not ended it.
	Consumers []StoredJob `json:"consumers,omitempty"`

	// Error is the beginning of the error of the last attempt that failed, without secrets, as of the last 10,000 failures at the Consumer.
	// It remains while the next attempt runs. The error of a dead job is in its DeadLetter.
	Error string `json:"error,omitempty"`

	// Header holds the headers of the message.
	Header nats.Header `json:"header,omitempty"`

	// Lost is the number of attempts in a row, up to Attempt, whose workers ended before they could report. It is counted from the third
	// attempt on: the job may be what ends them.
	Lost int `json:"lost,omitempty"`

	// DeadLetter is the dead letter of the job, as far as it is in one message: package deadletter reads the whole of a large letter. It is nil
	// for a job that is not dead, and for the record of a dead unique job in the stream.
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`

	// Next is the time of the next attempt of a delivered job that failed, was snoozed or was handed back. It is zero when that is unknown,
	// and once it has passed: the job is due.
	Next time.Time `json:"next,omitzero"`

	// Payload is the payload of the job. The payload of a job that has ended is in its dead letter, or gone.
	Payload []byte `json:"payload,omitempty"`

	// Progress is a worker's last record of the job, nil for none.
	Progress *Progress `json:"progress,omitempty"`

	// Displaced reports whether a delivered job may be retrying after all: another job has failed since, and has the place of its record.
	Displaced bool `json:"displaced,omitempty"`

	// Shared reports whether the job's stream is not a work queue: all who read the stream have the job, see [SharedError].
	Shared bool `json:"shared,omitempty"`
}

// Each returns the job as each of its consumers has it: the job itself unless several take it.
func (j *StoredJob) Each() (all []*StoredJob) {
	for i := range j.Consumers {
		all = append(all, &j.Consumers[i])
	}
	if all == nil {
		all = []*StoredJob{j}
	}
	return all
}

// lead gives a job the state that it has at the first consumer that has not ended it.
func (j *StoredJob) lead() {
	if len(j.Consumers) == 0 {
		return
	}
	open := slices.IndexFunc(j.Consumers, func(as StoredJob) bool { return !as.HasEnded() })
	first := j.Consumers[max(open, 0)]
	first.Header, first.Payload = j.Header, j.Payload
	if len(j.Consumers) > 1 {
		first.Consumers = j.Consumers
	}
	*j = first
}

// Jobs returns a page of the jobs in the stream, the oldest first. Any replica may answer, so a job of the last moments may be missing.
// Schedules that repeat are not jobs, see [Client.Schedules].
//
// The cost of a page does not grow with the stream: it reads 1,000 messages at most, in parts that are each as large as all before, so
// that a page that is soon full reads few. The client filters, not the server, which would search the whole stream for each page. So if
// few jobs match, a page may have few jobs, or none, and a Next. There are three exceptions. In a work queue, jobs that workers were given
// are searched only up to the last of them, and waiting jobs only behind it if consumers take all subjects. Delayed jobs or records are
// read alone if they are no more than Look. A filter with a Key and a Subject without wildcards names one job, as a NewJob does, which is
// looked up.
//
// A job's state is derived from the stream, its consumers and the workers' records at the time of the call:
//
//   - StateQueued: by its consumer's leader, it has not been delivered to any worker.
//   - StateScheduled: it is delayed until Due.
//   - StateRunning: Progress.Worker recorded at Progress.At that it runs: after AckWait/3, or with its first progress. After the death of
//     the worker the state remains until another worker has had the job for as long.
//   - StateRetrying: its last attempt failed with Error, and it waits for Next. It is due and no worker asks for jobs if Next is zero: then
//     it may run for less than AckWait/3.
//   - StateDelivered: it was delivered and no failure is recorded, or the next attempt was. It runs for less than AckWait/3, waits in a
//     worker for a limit or its turn, or is deferred until Next. In a stream that is not a work queue it may be done, or dead when its
//     subject has more than 1,000 dead letters.
//   - StateDone, StateDead, StateCancelled: the record of a unique job. A work queue has no trace of other jobs that have ended; in other
//     streams a consumer has them as StateDead while they have a dead letter, and otherwise as StateDone once it has acknowledged
//     everything before them. One more round trip for each subject with dead letters.
//
// A consumer keeps 10,000 failures, those of jobs whose sequences are equal modulo 10,000 in one place, so that an outage does not fill the
// bucket. Beyond that bound a failed job is StateDelivered, and has StoredJob.Displaced.
//
// The dead letters of all jobs are listed with JobFilter.Dead, as far as they are in one message.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	f.Limit, f.Look = cmp.Or(f.Limit, pageJobs), cmp.Or(f.Look, maxPage)
	if err := f.validate(); err != nil {
		return JobPage{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	l, err := c.openList(ctx, f.Dead)
	if err != nil {
		return JobPage{}, err
	}
	defer l.close()
	if !f.From.Created.IsZero() && !f.From.Created.Equal(l.Info.Created) {
		return JobPage{}, ErrCursor
	}
	page := JobPage{AsOf: l.Info.TimeStamp, Messages: l.Info.State.Msgs}
	if f.Count && !f.Dead {
		if page.Counts, err = l.countMore(ctx); err != nil {
			return page, err
		}
	}
	if f.Key != "" && subject.CheckLiteral(f.Subject) == nil && !f.Dead {
		err = l.only(ctx, f, &page)
	} else {
		err = l.fill(ctx, f, &page)
	}
	return page, err
}

// only fills a page with the job of a key.
func (l *list) only(ctx context.Context, f JobFilter, page *JobPage) error {
	j, err := l.client.Job(ctx, JobByKey(f.Subject, f.Key))
	page.Looked = 1
	switch {
	case errors.Is(err, ErrNoJob), err == nil && !f.selectsState(j):
		return nil
	case err == nil:
		page.Jobs = []StoredJob{j}
	}
	return err
}

// fill fills a page from the stream: from the messages that no consumer takes, or in parts that are each as large as all before.
func (l *list) fill(ctx context.Context, f JobFilter, page *JobPage) error {
	if kind := f.aside(); !f.Dead && kind != jobmsg.Job && l.Info.Config.Retention == jetstream.WorkQueuePolicy {
		messages, all, err := l.Few(ctx, kind, f.From.Sequence, f.Look)
		if err != nil {
			return err
		}
		if all {
			page.Looked = len(messages)
			return l.fillFrom(ctx, f, messages, page)
		}
	}
	first, last := l.span(f)
	if !f.selects() {
		f.Look = f.Limit
	}
	next := max(f.From.Sequence, first)
	for page.Looked < f.Look && next <= last && page.Next.Sequence == 0 {
		n := min(max(page.Looked, f.Limit), f.Look-page.Looked, int(min(last-next, maxPage))+1)
		messages, more, err := l.Read(ctx, next, n)
		if err != nil {
			return err
		}
		for len(messages) > 0 && messages[len(messages)-1].Sequence > last {
			messages, more = messages[:len(messages)-1], false
		}
		page.Looked += len(messages)
		if err := l.fillFrom(ctx, f, messages, page); err != nil || !more || len(messages) == 0 {
			return err
		}
		next = messages[len(messages)-1].Sequence + 1
		if len(page.Jobs) == f.Limit || len(messages) < n { // they are large
			break
		}
	}
	if page.Next.Sequence == 0 && next <= last {
		page.Next = Cursor{Created: l.Info.Created, Sequence: next}
	}
	return nil
}

// aside returns the kind of messages that the filter may select, if it is a single kind that no consumer takes, and otherwise jobmsg.Job.
func (f JobFilter) aside() (kind jobmsg.Kind) {
	for i, state := range f.States {
		of := jobmsg.Job
		switch state { //nolint:exhaustive // the others are of jobs
		case StateScheduled:
			of = jobmsg.Later
		case StateCancelled, StateDead, StateDone:
			of = jobmsg.Done
		}
		if i > 0 && of != kind {
			return jobmsg.Job
		}
		kind = of
	}
	return kind
}

// span returns the first and the last message that may be a job that a filter selects.
func (l *list) span(f JobFilter) (first, last uint64) {
	first, last = max(l.Info.State.FirstSeq, 1), math.MaxUint64
	isTaken := func(s State) bool { return s == StateDelivered || s == StateRunning || s == StateRetrying }
	switch {
	case f.Dead || len(f.States) == 0:
	case !slices.ContainsFunc(f.States, func(s State) bool { return !isTaken(s) }):
		last = l.Takers.Last
	case slices.Equal(f.States, []State{StateQueued}):
		first = l.Waiting()
	}
	return first, last
}

// fillFrom adds the jobs that a filter selects among messages to a page.
func (l *list) fillFrom(ctx context.Context, f JobFilter, messages []jsapi.Message, page *JobPage) error {
	var found []StoredJob
	for _, m := range messages {
		if j, ok := l.read(m); ok && f.hasName(j) && f.mayWant(j) {
			found = append(found, j)
		}
	}
	if f.wants(StateDelivered) && f.wants(StateRunning) && f.wants(StateRetrying) && (f.wants(StateDead) || !l.isShared()) {
		found = found[:min(len(found), f.Limit-len(page.Jobs)+1)] // the records cannot change the selection of these
	}
	if err := l.complete(ctx, found); err != nil {
		return err
	}
	for _, j := range found {
		for _, as := range j.Each() {
			if as.Displaced {
				page.Displaced++
			}
		}
		if !f.selectsState(j) {
			continue
		}
		if len(page.Jobs) == f.Limit {
			page.Next = Cursor{Created: l.Info.Created, Sequence: j.Sequence}
			break
		}
		page.Jobs = append(page.Jobs, j)
	}
	return nil
}
