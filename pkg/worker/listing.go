package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
	"github.com/expediter-io/expediter/pkg/worker/internal/partition"
)

// listing is what one call knows of a stream.
type listing struct {
	client *Client
	dead   bool // it is that of the dead letters
	get    *directget.Getter
	info   jetstream.StreamInfo
	known  map[key.Kind]map[string]uint64 // subjects of messages that no consumer takes
	takers *takers
}

// openListing looks at a stream and its consumers. Two round trips.
func (c *Client) openListing(ctx context.Context, dead bool) (*listing, error) {
	l := &listing{client: c, dead: dead, known: map[key.Kind]map[string]uint64{}, takers: &takers{}}
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
		ID: jobID(m.Header, l.client.cfg.Stream, m.Sequence), Sequence: m.Sequence, Since: m.Time, State: StateQueued,
		Stream: l.client.cfg.Stream, Subject: m.Subject,
	}}
	switch key.KindOf(m.Subject) {
	case key.Later:
		at, once := strings.CutPrefix(m.Header.Get(headerSchedule), "@at ")
		j.State, j.Subject = StateScheduled, l.client.targetOf(m.Header)
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
	stream, to, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.client.cfg.DeadSubject+"."), ".")
	letter, err := ParseDeadLetter(m.Data)
	if !l.client.has(stream) || err != nil || strings.HasPrefix(to, "$") {
		return StoredJob{}, false // another stream's, an advisory, or a part or record of a letter
	}
	return StoredJob{
		Consumer: letter.Consumer, Header: letter.Header, Letter: &letter, Payload: letter.Payload,
		Status: Status{ID: letter.ID, Sequence: m.Sequence, Since: m.Time, State: StateDead, Stream: letter.Stream, Subject: to},
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

const (
	// maxTold is how many messages that are no jobs for now are told apart. To do so the server lists their subjects.
	maxTold = 10_000

	// maxDelayed is how many delayed jobs Client.Delayed reads, pageDelayed at a time, since a message can have a megabyte.
	maxDelayed  = 2_000
	pageDelayed = 64
)

// Counts is how many messages of which kind a stream has. The counts are of one moment for each consumer, and of moments that are close to
// each other for all.
type Counts struct {
	// AsOf is when the server was asked, by its clock.
	AsOf time.Time

	// Delivered is how many jobs workers were given and have not ended: they run, wait in a worker, or for their next attempt.
	Delivered uint64

	// Messages is how many messages the stream has, and Queued how many of them are jobs that no worker was given yet.
	Messages, Queued uint64

	// Rest is how many are neither: delayed jobs, schedules, records of jobs that have ended, and jobs without a consumer. In a
	// stream that is no work queue they are also the jobs that have ended.
	Rest uint64

	// Ended and Scheduled are how many of the rest are records of unique jobs that have ended, and delayed jobs or schedules that
	// repeat. Told reports whether they were counted, which is not done for a Rest of more than 10,000.
	Ended, Scheduled uint64
	Told             bool
}

// told counts the messages of the stream by what the server knows of them: it reads none. Up to two round trips, that list the subjects of
// at most 10,000 messages.
func (l *listing) told(ctx context.Context) (Counts, error) {
	n := l.counts()
	for _, kind := range []key.Kind{key.Later, key.Done} {
		names, told, err := l.names(ctx, kind)
		if err != nil || !told {
			return n, err
		}
		for _, count := range names {
			if kind == key.Later {
				n.Scheduled += count
			} else {
				n.Ended += count
			}
		}
	}
	n.Told = true
	return n, nil
}

func (l *listing) counts() Counts {
	n := Counts{
		AsOf: l.info.TimeStamp, Delivered: l.takers.held, Messages: l.info.State.Msgs, Queued: l.takers.pending,
	}
	n.Rest = n.Messages - min(n.Messages, n.Queued+n.Delivered)
	return n
}

// names lists the subjects of a kind of message, with their counts, once. It does not when there may be too many.
func (l *listing) names(ctx context.Context, kind key.Kind) (names map[string]uint64, told bool, err error) {
	if names, told = l.known[kind]; told {
		return names, true, nil
	}
	names = map[string]uint64{}
	if n := l.counts(); n.Rest == 0 || n.Rest > maxTold {
		return names, n.Rest == 0, nil
	}
	entry := ""
	if transform := l.info.Config.SubjectTransform; transform != nil && partition.Count(l.info.Config) > 1 {
		entry = strings.TrimSuffix(transform.Source, ">")
	}
	for _, filter := range l.info.Config.Subjects {
		filter = strings.TrimPrefix(filter, entry)
		first, _, _ := strings.Cut(filter, ".")
		switch {
		case filter == partition.Barrier:
			continue
		case strings.ContainsAny(first, "*>"): // it would be the subjects of all jobs
			return names, false, nil
		case key.KindOf(filter) != kind:
			continue
		}
		var info jetstream.StreamInfo
		if err := l.client.api.Ask(ctx, "STREAM.INFO."+l.info.Config.Name, map[string]string{"subjects_filter": filter}, &info); err != nil {
			return nil, false, fmt.Errorf("worker: count %s of stream %s: %w", filter, l.info.Config.Name, err)
		}
		maps.Copy(names, info.State.Subjects)
	}
	l.known[kind] = names
	return names, true, nil
}

// aside reads the messages that a filter may select, when they are of one kind that no consumer takes, and few: those of the page, and
// what is behind it. all reports whether it did.
func (l *listing) aside(ctx context.Context, f JobFilter) (messages []jsapi.Message, all bool, err error) {
	var kind key.Kind
	for i, state := range f.States {
		of := key.Job
		switch state { //nolint:exhaustive // the others are of jobs
		case StateScheduled:
			of = key.Later
		case StateCancelled, StateDead, StateDone:
			of = key.Done
		}
		if i > 0 && of != kind {
			return nil, false, nil
		}
		kind = of
	}
	if f.Dead || kind == key.Job || l.info.Config.Retention != jetstream.WorkQueuePolicy {
		return nil, false, nil
	}
	names, told, err := l.names(ctx, kind)
	if err != nil || !told || len(names) > f.Look {
		return nil, false, err
	}
	for _, count := range names {
		if count > 1 { // the last of a subject is not all
			return nil, false, nil
		}
	}
	if messages, err = l.get.Last(ctx, l.info.Config.Name, slices.Collect(maps.Keys(names))); err != nil {
		return nil, false, fmt.Errorf("worker: read %d messages of stream %s: %w", len(names), l.info.Config.Name, err)
	}
	messages = slices.DeleteFunc(messages, func(m jsapi.Message) bool { return m.Sequence < f.From.Sequence })
	slices.SortFunc(messages, func(a, b jsapi.Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return messages, true, nil
}

// Delayed returns the delayed jobs of the stream, the first that is due first, without their payloads. It reads at most 2,000;
// all reports whether those were all. In a stream with more than 10,000 messages that are no jobs for now it reads none: a
// list of JobFilter.States goes on there. Three round trips, and one more for each 64 jobs. Any replica may answer. Of a stream with
// partitions all that is for each.
func (c *Client) Delayed(ctx context.Context) (jobs []StoredJob, all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	parts, err := c.known(ctx)
	for all = true; err == nil && len(parts) > 0; parts = parts[1:] {
		some, are, failed := parts[0].delayed(ctx)
		jobs, all, err = append(jobs, some...), all && are, failed
	}
	slices.SortFunc(jobs, func(a, b StoredJob) int { return a.Due.Compare(b.Due) })
	return jobs, all, err
}

func (c *Client) delayed(ctx context.Context) (jobs []StoredJob, all bool, err error) {
	l, err := c.openListing(ctx, false)
	if err != nil {
		return nil, false, err
	}
	defer l.close()
	names, all, err := l.names(ctx, key.Later)
	if err != nil {
		return nil, false, err
	}
	subjects := make([]string, 0, len(names))
	for subject := range names {
		subjects = append(subjects, subject)
	}
	if len(subjects) > maxDelayed {
		subjects, all = subjects[:maxDelayed], false
	}
	for page := range slices.Chunk(subjects, pageDelayed) {
		messages, err := l.get.Last(ctx, l.info.Config.Name, page)
		if err != nil {
			return nil, false, fmt.Errorf("worker: read delayed jobs of stream %s: %w", l.info.Config.Name, err)
		}
		for _, m := range messages {
			if j, ok := l.read(m); ok {
				j.Payload = nil
				jobs = append(jobs, j)
			}
		}
	}
	return jobs, all, nil
}

// pages fills a page from one partition after the other.
func (c *Client) pages(ctx context.Context, f JobFilter, parts []*Client) (JobPage, error) {
	all, count := JobPage{Counts: Counts{Told: true}}, f.Count
	f.Count = false
	for p := f.From.Partition; p < len(parts); p++ {
		page, err := parts[p].page(ctx, f)
		if err != nil {
			return all, err
		}
		all.AsOf, all.Jobs, all.Looked = page.AsOf, append(all.Jobs, page.Jobs...), all.Looked+page.Looked
		if all.Next = page.Next; page.Next != (Cursor{}) {
			all.Next.Partition = p
			break
		}
		if f.Limit, f.From = f.Limit-len(page.Jobs), (Cursor{}); f.Limit == 0 && p+1 < len(parts) {
			all.Next = Cursor{Partition: p + 1, Sequence: 1}
			break
		}
	}
	for _, part := range parts {
		n, err := part.told(ctx, count)
		if err != nil {
			return all, err
		}
		all.Messages += n.Messages
		all.Counts.add(n)
	}
	return all, nil
}

// told counts the messages of the client's own stream.
func (c *Client) told(ctx context.Context, all bool) (Counts, error) {
	l, err := c.openListing(ctx, false)
	if err != nil {
		return Counts{}, err
	}
	defer l.close()
	if all {
		return l.told(ctx)
	}
	return l.counts(), nil
}

// add adds the counts of another partition.
func (n *Counts) add(other Counts) {
	n.AsOf, n.Told = other.AsOf, n.Told && other.Told
	n.Delivered, n.Messages, n.Queued = n.Delivered+other.Delivered, n.Messages+other.Messages, n.Queued+other.Queued
	n.Rest, n.Ended, n.Scheduled = n.Rest+other.Rest, n.Ended+other.Ended, n.Scheduled+other.Scheduled
}
