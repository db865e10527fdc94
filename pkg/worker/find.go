package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

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

	// Subject is the subject of the job. With a Sequence it finds the job also after it has ended, if something of that is kept, or
	// has become due.
	Subject string
}

func (r JobRef) String() string {
	return fmt.Sprintf("%q at %d of subject %q %q", clip(r.ID, 64), r.Sequence, clip(r.Subject, 256), clip(r.Key, 64))
}

// Job returns one job, from the stream, or from what is kept of its end: the record of a unique job for as long as Unique.Keep,
// that of a cancelled one for a day, and the last dead letter of its subject. Its state is what [Client.Jobs] says. The error
// wraps [ErrNoJob] when there is nothing. Three round trips for a job that is in the stream, up to eight for one that is not.
func (c *Client) Job(ctx context.Context, ref JobRef) (StoredJob, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
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
