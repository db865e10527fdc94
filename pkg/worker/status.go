package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// State is how far a job has come.
type State string

const (
	// StateCancelled is a job that Client.Cancel removed. It holds no key.
	StateCancelled State = "cancelled"

	// StateDead is a job that was given up. It has a dead letter.
	StateDead State = "dead"

	// StateDelivered is a job that a worker was given, and of which it has recorded nothing, see [Client.Jobs].
	StateDelivered State = "delivered"

	// StateDone is a completed job.
	StateDone State = "done"

	// StateFree is no job.
	StateFree State = "free"

	// StateQueued is a job that waits for a worker. Of a key it may also wait for its next attempt.
	StateQueued State = "queued"

	// StateRetrying is a job that waits for its next attempt, see [Client.Jobs].
	StateRetrying State = "retrying"

	// StateRunning is a job that a worker has.
	StateRunning State = "running"

	// StateScheduled is a job that is not due yet.
	StateScheduled State = "scheduled"
)

// Status describes the message that holds a key.
type Status struct {
	// Due is when a scheduled job becomes due.
	Due time.Time

	// ID is the job's.
	ID string

	// Sequence is the position of the message in the stream: the job's, its schedule's or its record's.
	Sequence uint64

	// Since is when the server stored the message.
	Since time.Time

	// State is how far the job has come.
	State State

	// Stream is the stream of the message: of a stream that [Client.Grow] has divided, the partition.
	Stream string

	// Subject is the job's.
	Subject string
}

// isWaiting reports whether there is a job that no worker has.
func (s Status) isWaiting() bool { return s.State == StateQueued || s.State == StateScheduled }

// ErrLive is returned when a key cannot be freed since its job has not ended.
var ErrLive = errors.New("worker: the job has not ended")

// Inspect returns the status of a key: of the job with the given subject and, unless that is "", Unique.Key. A job is shown
// as running once it has run for a third of its worker's AckWait. The status may have changed by the time that Inspect
// returns: do not base an Insert on it. One round trip, two for a job that may be running.
func (c *Client) Inspect(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Status{}, fmt.Errorf("worker: inspect: %w", err)
	}
	at, err := c.at(ctx, k)
	if err != nil {
		return Status{}, err
	}
	return at.inspect(ctx, k)
}

func (c *Client) inspect(ctx context.Context, k key.Key) (Status, error) {
	msg, found, err := c.last(ctx, k.Any())
	switch {
	case err != nil:
		return Status{}, err
	case !found:
		return Status{State: StateFree, Subject: k.Job()}, nil
	}
	s, err := c.statusOf(ctx, k, msg)
	if s.State == StateFree {
		return Status{State: StateFree, Subject: k.Job()}, err
	}
	if err == nil && s.State == StateQueued {
		if p, err := c.progressOf(ctx, k, msg); err == nil && p.State == StateRunning {
			s.State = StateRunning
		}
	}
	return s, err
}

// Free frees a key that is held by the record of a done or dead job, and returns the former status. It never removes a job:
// when the job of the key has not ended, it returns [ErrLive]. A key that is free already is no error. Three round trips at
// most, as a rule.
func (c *Client) Free(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Status{}, fmt.Errorf("worker: free: %w", err)
	}
	if c, err = c.at(ctx, k); err != nil {
		return Status{}, err
	}
	freed := Status{State: StateFree, Subject: k.Job()}
	for {
		s, err := c.inspect(ctx, k)
		switch {
		case err != nil:
			return Status{}, err
		case s.State == StateFree:
			return freed, nil
		case s.State != StateDone && s.State != StateDead && s.State != StateCancelled:
			return s, fmt.Errorf("worker: free %q: %w, it is %s", s.Subject, ErrLive, s.State)
		}
		if err := c.remove(ctx, s.Sequence); err != nil {
			return Status{}, err
		}
		freed = s
	}
}

// statusOf reads a status from the last message of a key. A running mark costs one more read, to see whether its job is there.
func (c *Client) statusOf(ctx context.Context, k key.Key, msg jsapi.Message) (Status, error) {
	s := Status{
		ID: jobID(msg.Header, c.cfg.Stream, msg.Sequence), Sequence: msg.Sequence, Since: msg.Time,
		State: StateQueued, Stream: c.cfg.Stream, Subject: k.Job(),
	}
	switch key.KindOf(msg.Subject) {
	case key.Later:
		s.State = StateScheduled
		s.Due, _ = time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at ")) //nolint:errcheck // zero then
	case key.Done:
		s.State = State(cmp.Or(msg.Header.Get(HeaderState), string(StateDone)))
	case key.Job:
	}
	if s.State != StateRunning {
		return s, nil
	}
	job, found, err := c.last(ctx, k.Job())
	if err == nil && (!found || strconv.FormatUint(job.Sequence, 10) != msg.Header.Get(HeaderSequence)) {
		s.State = StateFree // the job was deleted by hand
	}
	return s, err
}

// insertOf returns the ID of the insert that a message stems from.
func insertOf(header nats.Header) string {
	return cmp.Or(header.Get(HeaderInsert), header.Get(HeaderID), header.Get(nats.MsgIdHdr))
}

// setExpected makes the server refuse a message unless the last one of the key is the given, 0 for none.
func setExpected(header nats.Header, k key.Key, sequence uint64) {
	header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, k.Any())
}

// ErrNoJob is returned when a job is not found: it has ended and nothing of its end is kept, or it never was.
var ErrNoJob = errors.New("worker: no such job")

// JobRef names a job.
type JobRef struct {
	// ID must be the job's. Defaults to any.
	ID string

	// Key is the Unique.Key. Defaults to none: the Subject of a Receipt or StoredJob has it.
	Key string

	// Sequence is that of a Receipt or StoredJob. Defaults to 0: the job that the subject has now, the latest if it has several.
	Sequence uint64

	// Stream is that of a StoredJob. A Sequence needs it where the stream has partitions and there is no Subject. Defaults to any.
	Stream string

	// Subject is the subject of the job. With a Sequence it finds the job also after it has ended, if something of that is kept, or
	// has become due.
	Subject string
}

// String names what the reference says.
func (r JobRef) String() string {
	var said []string
	for _, part := range []struct{ name, value string }{{"id", r.ID}, {"subject", r.Subject}, {"key", r.Key}} {
		if part.value != "" {
			said = append(said, fmt.Sprintf("%s %.80q", part.name, part.value))
		}
	}
	if r.Sequence != 0 {
		said = append(said, fmt.Sprint("sequence ", r.Sequence))
	}
	return strings.Join(said, ", ")
}

// Job returns one job, from the stream, or from what is kept of its end: the record of a unique job for as long as Unique.Keep,
// that of a cancelled one for a day, and the last dead letter of its subject. Its state is what [Client.Jobs] says. The error
// wraps [ErrNoJob] when there is nothing. Three round trips for a job that is in the stream, up to eight for one that is not.
func (c *Client) Job(ctx context.Context, ref JobRef) (StoredJob, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	parts, err := c.candidates(ctx, ref)
	if err != nil {
		return StoredJob{}, err
	}
	for _, at := range parts {
		var j StoredJob
		if j, err = at.job(ctx, ref); !errors.Is(err, ErrNoJob) {
			return j, err
		}
	}
	return StoredJob{}, err
}

// candidates are where a job may be, the most likely first.
func (c *Client) candidates(ctx context.Context, ref JobRef) ([]*Client, error) {
	all, err := c.known(ctx)
	if err != nil || len(all) == 1 {
		return all, err
	}
	if at := slices.IndexFunc(all, func(p *Client) bool { return p.cfg.Stream == ref.Stream }); at >= 0 {
		return all[at : at+1], nil
	}
	k, err := keyOf(ref.Subject, &Unique{Key: ref.Key})
	if err != nil {
		return all, nil //nolint:nilerr // it is found by its sequence or not at all
	}
	at, err := c.at(ctx, k)
	return []*Client{at, all[0]}, err // it may have ended there before the stream was divided
}

// job looks for a job in the client's own stream.
func (c *Client) job(ctx context.Context, ref JobRef) (StoredJob, error) {
	l, err := c.openListing(ctx, false)
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

// bySequence finds a job where it lay.
func (l *listing) bySequence(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
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

// bySubject finds the job that a subject has, or the record of its end.
func (l *listing) bySubject(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	if ref.Subject == "" {
		return j, false, nil
	}
	k, err := keyOf(ref.Subject, &Unique{Key: ref.Key})
	if err != nil {
		return j, false, err
	}
	m, found, err := l.client.last(ctx, k.Any())
	if err == nil && found && State(m.Header.Get(HeaderState)) == StateRunning {
		m, found, err = l.client.last(ctx, k.Job())
	}
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
	return j, ok, nil
}

// byLetter finds the last dead letter of a subject.
func (l *listing) byLetter(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	if ref.Subject == "" {
		return j, false, nil
	}
	k, err := keyOf(ref.Subject, &Unique{Key: ref.Key})
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
	return j, ok && (ref.ID == "" || j.ID == ref.ID) && (ref.ID != "" || ref.Sequence == 0 || j.Letter.Sequence == ref.Sequence), nil
}
