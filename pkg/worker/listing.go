package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
	"github.com/expediter-io/expediter/pkg/worker/internal/listing"
)

// list is a stream that is being listed.
type list struct {
	*listing.Stream

	client *Client
	dead   bool // it is the stream of the dead letters
}

// openList looks at a stream and its consumers. Two round trips.
func (c *Client) openList(ctx context.Context, dead bool) (*list, error) {
	stream := c.cfg.Stream
	if dead {
		stream = c.cfg.DeadStream
	}
	opened, err := listing.Open(ctx, c.nc, c.api, stream, !dead)
	switch {
	case jsapi.IsNoStream(err):
		return nil, &MissingError{Asset: "stream " + stream, Cause: err}
	case errors.Is(err, listing.ErrNoDirect):
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
	j.Header, j.Payload = listing.OwnHeaders(m.Header), m.Data
	kind := key.KindOf(m.Subject)
	if ok = kind != key.Later || !j.Due.IsZero(); kind == key.Done {
		j.Payload = nil
	}
	taker := l.Takers.Of(j.Subject)
	if taker == nil {
		return j, ok
	}
	j.Consumer = taker.Name
	switch {
	case j.State != StateQueued || m.Sequence > taker.Delivered:
	case l.Info.Config.Retention == jetstream.LimitsPolicy && m.Sequence <= taker.Floor:
		j.State = StateDone
	default:
		j.State = StateDelivered
	}
	return j, ok
}

// complete adds the workers' records of delivered jobs. One round trip for each 512 jobs.
func (l *list) complete(ctx context.Context, jobs []StoredJob) error {
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
	records, err := l.Get.Last(ctx, bucket, subjects)
	if err != nil {
		return fmt.Errorf("worker: read the workers' records in %s: %w", bucket, err)
	}
	for _, m := range records {
		var p Progress
		j := at[m.Subject]
		if j == nil || json.Unmarshal(m.Data, &p) != nil || p.ID != j.ID { // a record of a stream that was made again
			continue
		}
		j.Progress, j.State = &p, StateRetrying
		if p.State == StateRunning {
			j.State = StateRunning
		}
	}
	return nil
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
	n := l.counts()
	for _, kind := range []key.Kind{key.Later, key.Done} {
		names, listed, err := l.Names(ctx, kind)
		if err != nil || !listed {
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
	n.Detailed = true
	return n, nil
}

func (l *list) counts() Counts {
	return Counts{
		AsOf: l.Info.TimeStamp, Delivered: l.Takers.Held, Messages: l.Info.State.Msgs, Queued: l.Takers.Pending, Rest: l.Rest(),
	}
}

// ErrNoJob is returned when a job is not found: it has ended without a record of its end, or it never existed.
var ErrNoJob = errors.New("worker: no such job")

// Job returns one job, from the stream, or from the record of its end: that of a unique job for as long as Unique.Keep, that of a
// cancelled job for a day, and the last dead letter of its subject. Its state is as in [Client.Jobs]. The error wraps [ErrNoJob] when
// nothing is found. Three round trips for a job that is in the stream, up to eight for a job that is not.
func (c *Client) Job(ctx context.Context, ref JobRef) (j StoredJob, err error) {
	err = jsretry.Do(ctx, c.cfg.SettleTimeout, func(ctx context.Context) (err error) {
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
	k, err := keyOf(ref.Subject, &Unique{Key: ref.Key})
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
	return j, ok, nil
}

// byLetter finds the last dead letter of a subject.
func (l *list) byLetter(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
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
