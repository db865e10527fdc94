package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// list is a stream that is being listed.
type list struct {
	*jobmsg.Stream

	client *Client
	dead   bool // it is the stream of the dead letters
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
		return l.readLetter(m)
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
		err = l.addLetters(ctx, jobs)
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

// maxLetters bounds the dead letters of shared jobs that are read for one page.
const maxLetters = 1000

// addLetters finds the jobs that consumers have given up, whose messages stay in the stream: by the last dead letter of each subject, and
// by the earlier ones of subjects with several jobs. A job whose letter may be among those that were not read is not called done.
func (l *list) addLetters(ctx context.Context, jobs []StoredJob) error {
	at := make(map[string][]*StoredJob)
	for i := range jobs {
		to := l.client.cfg.DeadSubject + "." + jobs[i].Stream + "." + jobs[i].Subject
		at[to] = append(at[to], jobs[i].Each()...)
	}
	letters, err := l.Get.Last(ctx, l.client.cfg.DeadStream, slices.Collect(maps.Keys(at)))
	if err != nil && !jsapi.IsNoStream(err) {
		return fmt.Errorf("worker: read the dead letters in %s: %w", l.client.cfg.DeadStream, err)
	}
	for room := maxLetters; len(letters) > 0; letters = letters[1:] {
		last := letters[0]
		sharing := at[last.Subject]
		readLetter(last, sharing)
		if !slices.ContainsFunc(sharing, isDone) {
			continue
		}
		earlier, more, err := l.Get.Matching(ctx, l.client.cfg.DeadStream, last.Subject, 0, max(room, 1))
		if err != nil {
			return fmt.Errorf("worker: read the dead letters in %s: %w", l.client.cfg.DeadStream, err)
		}
		room -= len(earlier)
		for _, m := range earlier {
			readLetter(m, sharing)
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

// readLetter sets the state of the job of a dead letter, if it is among those with the letter's subject.
func readLetter(m jsapi.Message, jobs []*StoredJob) {
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
	for _, look := range []func(context.Context, JobRef) (StoredJob, bool, error){l.bySequence, l.byCancellation, l.bySubject, l.byLetter} {
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

// byLetter finds the last dead letter of a subject.
func (l *list) byLetter(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
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
	j, ok = l.readLetter(m)
	return j, ok && (ref.ID == "" || j.ID == ref.ID) && (ref.ID != "" || ref.Sequence == 0 || j.DeadLetter.Sequence == ref.Sequence), nil
}
