package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// errFiring is returned for a delayed job without a key that becomes due: how it is found then is not known.
var errFiring = errors.New("it becomes due at this moment: cancel it when it is listed as queued")

// CancelJob removes a job that has not ended, unique or not, and returns it as it was. It is no dead letter, and uses no attempt. A
// job that is queued, or waits for its next attempt, does not start any more. The context of a running handler ends within
// AckWait/3 (of its worker, 5/3 seconds by default) with the cause [ErrCancelled]; a handler that returns before does not notice,
// and its effects stand. A record of the cancellation is kept for a day, for the worker that may have the job, and for
// [Client.Job]: in the stream for a unique job, as [Client.Cancel] does, in the bucket for another. A delayed job leaves none, and
// without a key cannot be cancelled in the last 300 ms before it is due.
//
// A job that has ended is no error: see StoredJob.State. After an error the job may have been cancelled, and calling CancelJob again
// is safe; if it finds nothing, with an ID and a Subject, the job is gone. Five round trips.
func (c *Client) CancelJob(ctx context.Context, ref JobRef) (StoredJob, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return j, err
	}
	k, err := key.Of(j.Subject)
	_, unique := keepOf(j.Header)
	switch {
	case j.State == StateDone, j.State == StateDead, j.State == StateCancelled:
		return j, nil
	case err == nil && unique:
		s, err := c.cancelKey(ctx, k, j.ID)
		if err == nil && s.State == StateFree {
			err = fmt.Errorf("%w: %s", ErrNoJob, ref)
		}
		if s.State == StateDone || s.State == StateDead { // meanwhile
			j.Status = s
		}
		return j, err
	case j.State == StateScheduled && time.Until(j.Due) < nearDue:
		err = errFiring
	case j.State == StateScheduled:
		err = c.remove(ctx, j.Sequence)
	default:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelOther(ctx, j) })
	}
	if err != nil {
		err = fmt.Errorf("worker: cancel job %s: %w", ref, err)
	}
	return j, err
}

// cancellation is the record of a job that was cancelled and is not unique.
type cancellation struct {
	ID      string    `json:"id"`
	Stored  time.Time `json:"stored"` // tells apart a stream that was deleted and made again
	Subject string    `json:"subject"`
}

func cancelSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".cancelled." + stream + "." + strconv.FormatUint(sequence, 10)
}

// cancelOther records that a job is cancelled, and removes it.
func (c *Client) cancelOther(ctx context.Context, j StoredJob) error {
	data, err := json.Marshal(cancellation{ID: j.ID, Stored: j.Since, Subject: j.Subject})
	if err != nil {
		return err //nolint:wrapcheck // the caller says of what
	}
	msg := nats.NewMsg(c.api.Target(cancelSubject(c.cfg.Bucket, c.cfg.Stream, j.Sequence)))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, cancelKept.String())
	once, stop := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer stop()
	if _, err := c.js.PublishMsg(once, msg); err != nil {
		return err //nolint:wrapcheck // the caller says of what
	}
	return c.remove(ctx, j.Sequence)
}

// byCancellation finds the record of a job that was cancelled.
func (l *listing) byCancellation(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	c := l.client
	if ref.Sequence == 0 {
		return j, false, nil
	}
	m, found, err := c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: cancelSubject(c.cfg.Bucket, c.cfg.Stream, ref.Sequence)})
	if jsapi.IsNoStream(err) {
		err = nil
	}
	var was cancellation
	if err != nil || !found || json.Unmarshal(m.Data, &was) != nil {
		return j, false, err
	}
	k, named := keyOf(ref.Subject, &Unique{Key: ref.Key})
	ok = (ref.ID == "" || ref.ID == was.ID) && (named != nil || k.Job() == was.Subject)
	j.Status = Status{ID: was.ID, Sequence: ref.Sequence, Since: m.Time, State: StateCancelled, Subject: was.Subject}
	return j, ok, nil
}

// checkCancelled ends the contexts of jobs that have been cancelled and are not unique. One round trip for each 512.
func (w *Worker) checkCancelled(ctx context.Context, held []*delivery) {
	subjects := make([]string, 0, len(held))
	at := make(map[string]*delivery)
	for _, d := range held {
		to := cancelSubject(w.cfg.Bucket, d.info.Stream, d.info.Sequence)
		subjects, at[to] = append(subjects, to), d
	}
	records, err := w.bucket.GetMany(ctx, subjects)
	if err != nil {
		return // the next heartbeat is near
	}
	for _, r := range records {
		var was cancellation
		d := at[r.Subject]
		if d != nil && json.Unmarshal(r.Data, &was) == nil && was.Stored.Equal(d.info.EnqueuedAt) {
			w.cancelHandler(d)
		}
	}
}

// cancelHandler ends the context of a job that was cancelled.
func (w *Worker) cancelHandler(d *delivery) {
	if !d.cancelled {
		d.cancelled = true
		w.log.Info(EventJobCancelled, "job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence) // attempt may be changing
		d.cancel(ErrCancelled)
	}
}
