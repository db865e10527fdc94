package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvrecord"
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

	// DeadLetter is the dead letter of the job, as far as it is in one message: package deadletter reads the whole of a large one. It is
	// nil for a job that is not dead, and for the record of a dead unique job in the stream.
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

// list is a stream that is being listed.
type list struct {
	*jobmsg.Stream

	client *Client
	dead   bool // it is the stream of the dead letters
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

// openList looks at a stream and its consumers. Two round trips.
func (c *Client) openList(ctx context.Context, dead bool) (*list, error) {
	stream := c.cfg.Stream
	if dead {
		stream = c.cfg.DeadStream
	}
	opened, err := jobmsg.Open(ctx, c.nc, c.api, stream, !dead)
	switch {
	case jsapi.IsNoStream(err):
		missing := &MissingError{Asset: "stream " + stream, Cause: err, mends: true}
		if !dead {
			missing.maker = "worker.CreateStream"
		}
		return nil, missing
	case errors.Is(err, jobmsg.ErrNoDirect):
		return nil, &DriftError{Asset: "stream " + stream, Differences: []string{err.Error()}}
	case err != nil:
		return nil, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	}
	return &list{Stream: opened, client: c, dead: dead}, nil
}

func (l *list) close() { _ = l.Get.Close() } // the connection is closed then

// read returns the job of a message, and reports whether the message is a job. The workers' records of the job are still missing.
func (l *list) read(m jsapi.Message) (j StoredJob, ok bool) {
	if l.dead {
		return l.readDeadLetter(m)
	}
	j = l.client.statusIn(m)
	j.Header, j.Payload = jobmsg.OwnHeaders(m.Header), m.Data
	kind := jobmsg.KindOf(m.Subject)
	if ok = kind != jobmsg.Later || !j.Due.IsZero(); kind == jobmsg.Done {
		j.Payload = nil
	}
	if j.Shared = l.isShared(); j.Shared && kind == jobmsg.Done { // the end at one consumer says nothing of the others
		j.Consumer = m.Header.Get(headerConsumer)
		return j, ok
	}
	for _, taker := range l.Takers.AllOf(m, j.Subject) {
		as := j
		as.Header, as.Payload, as.Consumer = nil, nil, taker.Name
		switch {
		case j.State != StateQueued || m.Sequence > taker.Delivered:
		case j.Shared && m.Sequence <= taker.Floor:
			as.State = StateDone
		default:
			as.State = StateDelivered
		}
		j.Consumers = append(j.Consumers, as)
	}
	j.lead()
	return j, ok
}

// isShared reports whether all who read the stream have its messages.
func (l *list) isShared() bool {
	return !l.dead && l.Info.Config.Retention != jetstream.WorkQueuePolicy
}

// complete adds what consumers have recorded of jobs. One round trip for each 170 jobs, and one more in a stream that is not a work queue.
func (l *list) complete(ctx context.Context, jobs []StoredJob) error {
	err := l.addRecords(ctx, jobs)
	if err == nil && l.isShared() && len(jobs) > 0 {
		err = l.addDeadLetters(ctx, jobs)
	}
	for i := range jobs {
		jobs[i].lead()
	}
	return err
}

// addRecords adds the workers' records of delivered jobs.
func (l *list) addRecords(ctx context.Context, jobs []StoredJob) error {
	readers := make(map[string][]func(jsapi.Message))
	read := func(subject string, reader func(jsapi.Message)) { readers[subject] = append(readers[subject], reader) }
	cfg := l.client.cfg
	for i := range jobs {
		for _, j := range jobs[i].Each() {
			if j.State == StateDelivered {
				read(progressOf(cfg.Bucket, cfg.Stream, j.Sequence, j.Consumer, j.Shared), j.readProgress)
				read("$KV."+cfg.Bucket+"."+j.place().uncountedKey(), j.readUncounted)
				read(failureSubject(cfg.Bucket, cfg.Stream, j.Consumer, j.Sequence), j.readFailure)
			}
		}
	}
	bucket := "KV_" + cfg.Bucket
	records, err := l.Get.Last(ctx, bucket, slices.Collect(maps.Keys(readers)))
	if err != nil {
		return fmt.Errorf("worker: read the workers' records in %s: %w", bucket, err)
	}
	// A later record says more of when the job is due, and whether it runs.
	slices.SortFunc(records, func(a, b jsapi.Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, m := range records {
		for _, reader := range readers[m.Subject] {
			reader(m)
		}
	}
	for i := range jobs {
		for _, j := range jobs[i].Each() {
			l.judge(j)
		}
	}
	return nil
}

// maxDeadLetters bounds the dead letters of shared jobs that are read for one page.
const maxDeadLetters = 1000

// addDeadLetters finds the jobs that consumers have given up, whose messages stay in the stream: by the last dead letter of each subject,
// and by the earlier ones of subjects with several jobs. A job whose dead letter may be among those that were not read is not called done.
func (l *list) addDeadLetters(ctx context.Context, jobs []StoredJob) error {
	at := make(map[string][]*StoredJob)
	for i := range jobs {
		to := l.client.cfg.DeadSubject + "." + jobs[i].Stream + "." + jobs[i].Subject
		at[to] = append(at[to], jobs[i].Each()...)
	}
	letters, err := l.Get.Last(ctx, l.client.cfg.DeadStream, slices.Collect(maps.Keys(at)))
	if err != nil && !jsapi.IsNoStream(err) {
		return fmt.Errorf("worker: read the dead letters in %s: %w", l.client.cfg.DeadStream, err)
	}
	for room := maxDeadLetters; len(letters) > 0; letters = letters[1:] {
		last := letters[0]
		sharing := at[last.Subject]
		readDeadLetter(last, sharing)
		if !slices.ContainsFunc(sharing, isDone) {
			continue
		}
		earlier, more, err := l.Get.Matching(ctx, l.client.cfg.DeadStream, last.Subject, 0, max(room, 1))
		if err != nil {
			return fmt.Errorf("worker: read the dead letters in %s: %w", l.client.cfg.DeadStream, err)
		}
		room -= len(earlier)
		for _, m := range earlier {
			readDeadLetter(m, sharing)
		}
		for _, j := range sharing {
			if more && isDone(j) {
				j.State = StateDelivered
			}
		}
	}
	return nil
}

func isDone(j *StoredJob) bool { return j.State == StateDone }

// readDeadLetter sets the state of the job of a dead letter, if it is among those with the letter's subject.
func readDeadLetter(m jsapi.Message, jobs []*StoredJob) {
	letter, err := ParseDeadLetter(m.Data)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if j.Consumer == letter.Consumer && j.Sequence == letter.Sequence && j.Since.Equal(letter.EnqueuedAt) {
			letter.Header, letter.Payload = nil, nil // which the job has
			j.State, j.DeadLetter = StateDead, &letter
		}
	}
}

// judge ends the wait of a job that is due. A consumer that has requests of workers and a job that is due has delivered the job.
func (l *list) judge(j *StoredJob) {
	if j.Next.After(l.Info.TimeStamp) {
		return
	}
	j.Next = time.Time{}
	if taker := l.Takers.Of(j.Subject); j.State == StateRetrying && (j.Shared || taker != nil && taker.Asked) {
		j.State = StateDelivered
	}
}

func (j *StoredJob) place() place {
	return place{stream: j.Stream, consumer: j.Consumer, sequence: j.Sequence, stored: j.Since}
}

// waits sets the time at which a job that does not run is due.
func (j *StoredJob) waits(next time.Time) {
	if j.State, j.Next = StateDelivered, next; j.Error != "" {
		j.State = StateRetrying
	}
}

func (j *StoredJob) readProgress(m jsapi.Message) {
	var p Progress
	if json.Unmarshal(m.Data, &p) != nil || p.ID != j.ID { // a record of a stream that was made again
		return
	}
	j.Progress, j.Attempt = &p, p.Attempt
	j.waits(time.Time{})
	if p.State == StateRunning {
		j.State = StateRunning
	}
}

func (j *StoredJob) readUncounted(m jsapi.Message) {
	if known := decodeUncounted(kvrecord.Record{Data: m.Data}, j.place()); known.Last > 0 {
		j.waits(m.Time.Add(known.Delay))
	}
}

func (j *StoredJob) readFailure(m jsapi.Message) {
	var f failure
	switch err := json.Unmarshal(m.Data, &f); {
	case err != nil:
	case f.isOf(j.Sequence, j.Since):
		j.Attempt, j.Error, j.Lost = f.Attempt, f.Error, f.Lost
		j.waits(m.Time.Add(f.Delay))
	default:
		j.Displaced = f.Sequence != j.Sequence && m.Time.After(j.Since)
	}
}

// Counts has the numbers of messages of a stream, by kind. The counts of one consumer are those of one moment; the moments of all
// consumers are close to each other.
type Counts struct {
	// AsOf is the time at which the server was asked, by the server's clock.
	AsOf time.Time

	// Delivered is the number of jobs that workers were given and that have not ended: they run, wait in a worker, or wait for their next
	// attempt.
	Delivered uint64

	// Messages is the number of messages of the stream, and Queued the number of jobs that no worker was given yet. The server counts a
	// job in Rest until its consumer has noticed it, a moment after it was stored.
	Messages, Queued uint64

	// Rest is the number of other messages: delayed jobs, schedules, records of jobs that have ended, and jobs without a consumer. In a
	// stream that is not a work queue they are also the jobs that have ended.
	Rest uint64

	// Ended is the number, within Rest, of records of unique jobs that have ended, and Scheduled that of delayed jobs and schedules that
	// repeat. Detailed reports whether they were counted, which is not done for a Rest of more than 10,000.
	Ended, Scheduled uint64
	Detailed         bool
}

// countMore counts the messages of the stream by the server's counts of subjects and consumers: it reads no message. Up to two round trips,
// which list the subjects of at most 10,000 messages.
func (l *list) countMore(ctx context.Context) (Counts, error) {
	n := Counts{
		AsOf: l.Info.TimeStamp, Delivered: l.Takers.Held, Messages: l.Info.State.Msgs, Queued: l.Takers.Pending, Rest: l.Rest(),
	}
	for _, kind := range []jobmsg.Kind{jobmsg.Later, jobmsg.Done} {
		names, listed, err := l.Names(ctx, kind)
		if err != nil || !listed {
			return n, err
		}
		for _, count := range names {
			if kind == jobmsg.Later {
				n.Scheduled += count
			} else {
				n.Ended += count
			}
		}
	}
	n.Detailed = true
	return n, nil
}

// ErrNoJob is returned when a job is not found: it has ended without a record of its end, or it never existed.
var ErrNoJob = errors.New("worker: no such job")

// Job returns one job, from the stream, or from the record of its end: that of a unique job for as long as Unique.Keep, that of a
// cancelled job for a day, and the last dead letter of its subject. Its state is as in [Client.Jobs]. The error wraps [ErrNoJob] when
// nothing is found. Three round trips for a job that is in the stream, up to eight for a job that is not.
func (c *Client) Job(ctx context.Context, ref JobRef) (j StoredJob, err error) {
	err = jsapi.Retry(ctx, c.cfg.SettleTimeout, func(ctx context.Context) (err error) {
		j, err = c.job(ctx, ref)
		return err
	})
	return j, err
}

// job is Job without retries.
func (c *Client) job(ctx context.Context, ref JobRef) (StoredJob, error) {
	l, err := c.openList(ctx, false)
	if err != nil {
		return StoredJob{}, err
	}
	defer l.close()
	ways := []func(context.Context, JobRef) (StoredJob, bool, error){l.bySequence, l.byCancellation, l.bySubject, l.byDeadLetter}
	for _, look := range ways {
		found, ok, err := look(ctx, ref)
		if err != nil {
			return StoredJob{}, fmt.Errorf("worker: job %s: %w", ref, err)
		}
		if ok {
			all := []StoredJob{found}
			err = l.complete(ctx, all)
			return all[0], err
		}
	}
	return StoredJob{}, fmt.Errorf("%w: %s", ErrNoJob, ref)
}

// bySequence finds a job at its sequence.
func (l *list) bySequence(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	if ref.Sequence == 0 {
		return j, false, nil
	}
	m, found, err := l.client.api.Get(ctx, l.client.cfg.Stream, jsapi.Query{Sequence: ref.Sequence})
	if err != nil || !found {
		return j, false, err
	}
	j, ok = l.read(m)
	return j, ok && (ref.ID == "" || j.ID == ref.ID), nil
}

// bySubject finds the job of a subject, or the record of its end.
func (l *list) bySubject(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	if ref.Subject == "" {
		return j, false, nil
	}
	k, err := keyOf(ref.Subject, "")
	if err != nil {
		return j, false, err
	}
	m, found, err := l.client.last(ctx, k.Any())
	if err != nil || !found {
		return j, false, err
	}
	j, ok = l.read(m)
	switch {
	case ref.ID != "":
		ok = ok && ref.ID == j.ID
	case ref.Sequence != 0:
		ok = ok && m.Header.Get(HeaderSequence) == strconv.FormatUint(ref.Sequence, 10)
	}
	if ok && j.State == StateCancelled { // maybe by a call that did not come to its end: then the stream still has the job
		place, _ := strconv.ParseUint(m.Header.Get(HeaderSequence), 10, 64) // none then
		if job, found, err := l.bySequence(ctx, JobRef{ID: j.ID, Sequence: place}); err != nil || found {
			return job, found, err
		}
	}
	return j, ok, nil
}

// byDeadLetter finds the last dead letter of a subject.
func (l *list) byDeadLetter(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	if ref.Subject == "" {
		return j, false, nil
	}
	k, err := keyOf(ref.Subject, "")
	if err != nil {
		return j, false, err
	}
	c := l.client
	m, found, err := c.api.Get(ctx, c.cfg.DeadStream, jsapi.Query{LastBySubject: c.cfg.DeadSubject + "." + c.cfg.Stream + "." + k.Job()})
	if jsapi.IsNoStream(err) {
		err = nil
	}
	if err != nil || !found {
		return j, false, err
	}
	j, ok = l.readDeadLetter(m)
	return j, ok && (ref.ID == "" || j.ID == ref.ID) && (ref.ID != "" || ref.Sequence == 0 || j.DeadLetter.Sequence == ref.Sequence), nil
}
