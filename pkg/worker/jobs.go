package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
	"github.com/expediter-io/expediter/pkg/worker/token"
)

const (
	pageJobs = 100   // of a page, by default
	maxPage  = 1_000 // messages that a page reads
)

// ErrCursor is returned when the stream was deleted and made anew since a page of it was read.
var ErrCursor = errors.New("worker: the stream was made anew since the cursor was returned: begin with the first page")

// Cursor is where a page begins. The zero Cursor is the oldest message.
type Cursor struct {
	// Created is when the stream was created, as it was when the cursor was returned. Zero is not checked.
	Created time.Time

	// Sequence is the first message to read.
	Sequence uint64
}

// JobFilter selects jobs. Its fields are joined by "and"; the zero value selects all of the stream.
type JobFilter struct {
	// Dead lists the dead letters of the stream's jobs, in ClientConfig.DeadStream, instead of the stream. Defaults to false.
	Dead bool

	// From is where to begin: the Next of the page before. Defaults to the oldest.
	From Cursor

	// Key selects the jobs of a Unique.Key. Defaults to all.
	Key string

	// Limit is how many jobs a page has at most, up to 1,000. Defaults to 100.
	Limit int

	// Look is how many messages a page of selected jobs reads at most, up to 1,000. Defaults to 1,000.
	Look int

	// States selects jobs by their states. Defaults to all.
	States []State

	// Subject is a pattern that the subject must match, with the key, such as "jobs.mail.>". Defaults to all.
	Subject string
}

// validate reports all mistakes at once. It expects defaults to be set.
func (f JobFilter) validate() error {
	var m mistakes
	if f.Limit < 1 || f.Limit > maxPage {
		m.addf("JobFilter.Limit is %d: use 1 to %d", f.Limit, maxPage)
	}
	if f.Look < 1 || f.Look > maxPage {
		m.addf("JobFilter.Look is %d: use 1 to %d", f.Look, maxPage)
	}
	if f.Subject != "" {
		if err := subject.CheckPattern(f.Subject); err != nil {
			m.addf("JobFilter.Subject is %q: not a subject filter: %w", clip(f.Subject, key.MaxSubject), err)
		}
	}
	if f.Key != "" {
		if _, err := token.Encode(f.Key); err != nil {
			m.addf("JobFilter.Key: %w", err)
		}
	}
	return m.err()
}

// wants reports whether the filter selects jobs in a state.
func (f JobFilter) wants(s State) bool { return len(f.States) == 0 || slices.Contains(f.States, s) }

// mayWant reports whether the filter may select a job in a state that is not completed yet.
func (f JobFilter) mayWant(s State) bool {
	return f.wants(s) || s == StateDelivered && (f.wants(StateRunning) || f.wants(StateRetrying))
}

// hasName reports whether the filter selects a job by its subject and key.
func (f JobFilter) hasName(j StoredJob) bool {
	last, _ := token.Encode(f.Key) //nolint:errcheck // it has been checked
	return (f.Key == "" || strings.HasSuffix(j.Subject, "."+last)) && (f.Subject == "" || subject.Matches(f.Subject, j.Subject))
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	// AsOf is when the server was asked, by its clock.
	AsOf time.Time

	// Jobs are in the order of the stream.
	Jobs []StoredJob

	// Looked is how many messages were read.
	Looked int

	// Messages is how many messages the stream has, schedules and records among them.
	Messages uint64

	// Next is where the next page begins. It is the zero Cursor at the end. There can be another page behind one without jobs.
	Next Cursor
}

// StoredJob is a job as the server has it.
type StoredJob struct {
	Status

	// Consumer is that which takes the job, "" when none does: nothing would ever work it.
	Consumer string

	// Header holds the headers of the message.
	Header nats.Header

	// Letter is the dead letter of the job, as far as one message holds it: package deadletter has the whole of a large one.
	// It is nil for a job that is not dead, and for the record of a dead unique job in the stream.
	Letter *DeadLetter

	// Payload is the job's. That of a job that has ended is in its dead letter, or gone.
	Payload []byte

	// Progress is what a worker last recorded of the job, nil for nothing.
	Progress *Progress

	// Result is what the handler of a done job passed to Job.SetResult, nil for nothing.
	Result json.RawMessage
}

// Jobs returns a page of the jobs in the stream, the oldest first. Any replica may answer, so a job of the last moments may be
// missing. Schedules that repeat are no jobs, see [Client.Schedules].
//
// The cost of a page does not grow with the stream: three round trips at most, that read 1,000 messages and 8 MiB at most.
// A filter is not the server's, which would look through the whole stream for each page. So where little matches a page may have
// few jobs, or none, and a Next. A filter with a Key and a Subject without wildcards names one job, as a NewJob does, which is looked up.
//
// A job's state is what the stream, its consumers and the workers' records say at the time of the call:
//
//   - StateQueued: it has not been delivered to any worker, as the leader of its consumer has it.
//   - StateScheduled: it is delayed. Due is certain.
//   - StateRunning: Progress.Worker recorded at Progress.At that it runs: after AckWait/3, or with its first progress. After the
//     death of the worker that remains until another has had the job for as long.
//   - StateRetrying: its last attempt failed, was snoozed or handed back. A short next attempt does not show.
//   - StateDelivered: it was delivered and nothing is recorded. It runs for less than AckWait/3, waits in a worker for a limit or its
//     turn, or was put off. In a stream that is no work queue it may be done.
//   - StateDone, StateDead, StateCancelled: the record of a unique job. Of other jobs that have ended a work queue has nothing; elsewhere
//     they are StateDone once the consumer has acknowledged everything before them.
//
// The dead letters of all jobs are listed with JobFilter.Dead, as far as one message holds them.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	f.Limit, f.Look = cmp.Or(f.Limit, pageJobs), cmp.Or(f.Look, maxPage)
	if err := f.validate(); err != nil {
		return JobPage{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	l, err := c.openListing(ctx, f.Dead)
	if err != nil {
		return JobPage{}, err
	}
	defer l.close()
	if !f.From.Created.IsZero() && !f.From.Created.Equal(l.info.Created) {
		return JobPage{}, ErrCursor
	}
	page := JobPage{AsOf: l.info.TimeStamp, Messages: l.info.State.Msgs}
	if f.Key != "" && subject.CheckLiteral(f.Subject) == nil && !f.Dead {
		err = l.only(ctx, f, &page)
	} else {
		err = l.fill(ctx, f, &page)
	}
	return page, err
}

// listing is what one call knows of a stream.
type listing struct {
	client *Client
	dead   bool // it is that of the dead letters
	get    *directget.Getter
	info   jetstream.StreamInfo
	takers *takers
}

// only fills a page with the job of a key.
func (l *listing) only(ctx context.Context, f JobFilter, page *JobPage) error {
	j, err := l.client.Job(ctx, JobRef{Key: f.Key, Subject: f.Subject})
	page.Looked = 1
	switch {
	case errors.Is(err, ErrNoJob), err == nil && !f.wants(j.State):
		return nil
	case err == nil:
		page.Jobs = []StoredJob{j}
	}
	return err
}

// fill fills a page from the stream.
func (l *listing) fill(ctx context.Context, f JobFilter, page *JobPage) error {
	n := f.Limit
	if f.Dead || f.Key != "" || f.Subject != "" || len(f.States) > 0 {
		n = f.Look
	}
	messages, more, err := l.get.From(ctx, l.info.Config.Name, max(f.From.Sequence, l.info.State.FirstSeq, 1), n)
	if err != nil {
		return fmt.Errorf("worker: read stream %s from %d: %w", l.info.Config.Name, f.From.Sequence, err)
	}
	var found []StoredJob
	for _, m := range messages {
		if j, ok := l.read(m); ok && f.hasName(j) && f.mayWant(j.State) {
			found = append(found, j)
		}
	}
	if f.wants(StateDelivered) && f.wants(StateRunning) && f.wants(StateRetrying) {
		found = found[:min(len(found), f.Limit+1)] // whatever was recorded of them
	}
	if err := l.complete(ctx, found); err != nil {
		return err
	}
	if page.Looked = len(messages); more && len(messages) > 0 {
		page.Next = Cursor{Created: l.info.Created, Sequence: messages[len(messages)-1].Sequence + 1}
	}
	for _, j := range found {
		if !f.wants(j.State) {
			continue
		}
		if len(page.Jobs) == f.Limit {
			page.Next = Cursor{Created: l.info.Created, Sequence: j.Sequence}
			break
		}
		page.Jobs = append(page.Jobs, j)
	}
	return nil
}

// openListing looks at a stream and its consumers. Two round trips.
func (c *Client) openListing(ctx context.Context, dead bool) (*listing, error) {
	l := &listing{client: c, dead: dead, takers: &takers{}}
	stream := c.cfg.Stream
	if dead {
		stream = c.cfg.DeadStream
	}
	err := c.api.Ask(ctx, "STREAM.INFO."+stream, nil, &l.info)
	switch {
	case jsapi.IsNoStream(err):
		return nil, &MissingError{Asset: "stream " + stream, Cause: err}
	case err != nil:
		return nil, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	case !l.info.Config.AllowDirect:
		return nil, &DriftError{Asset: "stream " + stream, Differences: []string{"allow_direct is false, must be true to list its jobs"}}
	}
	if !dead {
		if l.takers, err = c.listTakers(ctx); err != nil {
			return nil, err
		}
	}
	if l.get, err = directget.New(c.nc, c.api.Prefix); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return l, nil
}

func (l *listing) close() { _ = l.get.Close() } //nolint:errcheck // the connection is closed then

// read returns the job of a message, and whether it is one. What workers recorded of it is still missing.
func (l *listing) read(m jsapi.Message) (j StoredJob, ok bool) {
	if l.dead {
		return l.readLetter(m)
	}
	j = StoredJob{Header: ownHeaders(m.Header), Payload: m.Data, Status: Status{
		ID: jobID(m.Header, l.client.cfg.Stream, m.Sequence), Sequence: m.Sequence, Since: m.Time, State: StateQueued, Subject: m.Subject,
	}}
	switch key.KindOf(m.Subject) {
	case key.Later:
		at, once := strings.CutPrefix(m.Header.Get(headerSchedule), "@at ")
		j.State, j.Subject = StateScheduled, m.Header.Get(headerScheduleTarget)
		j.Due, _ = time.Parse(time.RFC3339, at) //nolint:errcheck // zero then
		ok = once
	case key.Done:
		j.State, j.Subject = State(cmp.Or(m.Header.Get(HeaderState), string(StateDone))), key.JobOf(m.Subject)
		if j.Payload = nil; len(m.Data) > 0 {
			j.Result = m.Data
		}
		ok = j.State != StateRunning && j.State != StateFree // a mark of a job that is there as well; nothing
	case key.Job:
		ok = true
	}
	taker, _ := l.takers.tree.Find(j.Subject)
	if taker == nil {
		return j, ok
	}
	j.Consumer = taker.name
	switch {
	case j.State != StateQueued || m.Sequence > taker.delivered:
	case l.info.Config.Retention == jetstream.LimitsPolicy && m.Sequence <= taker.floor:
		j.State = StateDone
	default:
		j.State = StateDelivered
	}
	return j, ok
}

// readLetter returns the job of a dead letter.
func (l *listing) readLetter(m jsapi.Message) (StoredJob, bool) {
	to, ours := strings.CutPrefix(m.Subject, l.client.cfg.DeadSubject+"."+l.client.cfg.Stream+".")
	letter, err := ParseDeadLetter(m.Data)
	if !ours || err != nil || strings.HasPrefix(to, "$") {
		return StoredJob{}, false // another stream's, an advisory, or a part or record of a letter
	}
	return StoredJob{
		Consumer: letter.Consumer, Header: letter.Header, Letter: &letter, Payload: letter.Payload,
		Status: Status{ID: letter.ID, Sequence: m.Sequence, Since: m.Time, State: StateDead, Subject: to},
	}, true
}

// complete adds what workers recorded of delivered jobs. One round trip for each 512.
func (l *listing) complete(ctx context.Context, jobs []StoredJob) error {
	var subjects []string
	at := make(map[string]*StoredJob)
	for i := range jobs {
		if j := &jobs[i]; j.State == StateDelivered {
			to := ProgressSubject(l.client.cfg.Bucket, l.client.cfg.Stream, j.Sequence)
			subjects, at[to] = append(subjects, to), j
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	bucket := "KV_" + l.client.cfg.Bucket
	records, err := l.get.Last(ctx, bucket, subjects)
	if err != nil {
		return fmt.Errorf("worker: read what workers recorded in %s: %w", bucket, err)
	}
	for _, m := range records {
		var p Progress
		j := at[m.Subject]
		if j == nil || json.Unmarshal(m.Data, &p) != nil || p.ID != j.ID { // of a stream that was made again
			continue
		}
		j.Progress, j.State = &p, StateRetrying
		if p.State == StateRunning {
			j.State = StateRunning
		}
	}
	return nil
}

// ownHeaders returns the headers of a message without those that the server adds to its answer.
func ownHeaders(header nats.Header) nats.Header {
	for _, name := range []string{
		"Nats-Last-Sequence", "Nats-Num-Pending", "Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp", "Nats-UpTo-Sequence",
	} {
		delete(header, name)
	}
	return header
}
